"""The files of a log: segments, their indexes, their retention."""
