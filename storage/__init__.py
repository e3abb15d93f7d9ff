"""The logs of a broker on its disk: segments, indexes, producer state, and the data directory.

This folder may import runtime and wire.
"""
