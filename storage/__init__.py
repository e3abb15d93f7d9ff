"""The log of one partition on one disk.

This folder may import runtime and wire.
"""
