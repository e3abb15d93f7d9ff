"""Kafka bytes and values; no I/O at all (floor 1)."""
