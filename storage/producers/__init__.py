"""The state of a partition's producers; begin with state.py."""
