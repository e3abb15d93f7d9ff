"""storage/compaction: which log is compacted next, what stays, and how it is swapped in."""
