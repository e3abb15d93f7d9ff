"""Principals, and their credentials in the replicated metadata."""
