"""The coordinator's assignors, which distribute partitions to the members of a group (KIP-848)."""
