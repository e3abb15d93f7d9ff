"""The files of a log, which are segments with their indexes, and their retention."""
