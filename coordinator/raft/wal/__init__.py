"""The write-ahead log of all Raft groups of a process, and its recovery."""
