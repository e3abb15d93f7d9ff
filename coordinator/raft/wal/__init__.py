"""raft/wal: the write-ahead log of all Raft groups of a process, and its recovery."""
