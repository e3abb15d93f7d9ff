"""The log of one partition on one disk. It may import runtime and wire."""
