"""Access control lists, as values, as an index, and as pure decisions."""
