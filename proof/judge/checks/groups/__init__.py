"""The checks of consumer groups, with any protocol (A6), and only with KIP-848 (G1 to G3)."""
