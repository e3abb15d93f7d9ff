"""The transactions of a producer, with its states and its reactions to errors."""
