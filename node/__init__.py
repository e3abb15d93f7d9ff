"""node: one broker in one process (floor 5)."""
