"""storage/compaction: choose the log to compact, rewrite its batches, and swap the result in."""
