"""Is somebody's application exactly once? `diagnosis/` says from its protocol what is wrong."""
