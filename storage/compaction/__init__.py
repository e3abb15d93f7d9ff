"""Log compaction, which chooses a log, rewrites its batches, and replaces its segments."""
