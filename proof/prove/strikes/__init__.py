"""Kinds of faults whose code is too long for striking.py."""
