"""Checks of groups of consumers: of any protocol (A6), and of the newer one alone (G1 to G3)."""
