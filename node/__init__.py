"""One broker, one process (floor 5)."""
