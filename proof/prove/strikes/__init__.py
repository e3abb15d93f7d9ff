"""Kinds of faults that have their code outside of striking.py, since it is long."""
