"""The checks of logs and the files beside them, without a history of clients."""
