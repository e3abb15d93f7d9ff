"""Kinds of faults that are too long for the striker."""
