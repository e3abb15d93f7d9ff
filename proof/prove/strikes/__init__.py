"""Kinds of faults that need more than a line of the striker."""
