"""Faults of a cluster on this machine, and a load that shows their effects."""
