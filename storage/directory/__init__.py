"""The data directory of a broker, with its owner, its partitions, and its checkpoints."""
