"""storage/directory: a broker's data directory: its owner, its partitions, its checkpoints."""
