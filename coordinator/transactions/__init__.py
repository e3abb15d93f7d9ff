"""The transaction coordinator, as replicated shards, each a Raft group (KIP-98, 360, 447, 890)."""
