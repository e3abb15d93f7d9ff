"""The state of a partition's producers. Begin with state.py."""
