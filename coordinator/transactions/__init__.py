"""The transaction coordinator: replicated shards, one Raft group each (KIP-98, 360, 447, 890)."""
