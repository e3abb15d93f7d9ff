"""storage/segments: the files of a log: segments, their indexes, their retention."""
