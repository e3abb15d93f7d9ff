"""Which member of a group gets which partitions, decided by the coordinator (KIP-848)."""
