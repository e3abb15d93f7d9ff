"""Kafka's bytes and values, without any I/O (floor 1)."""
