"""One partition log on one disk (floor 2)."""
