"""Kafka's bytes and values, without any I/O. It may import runtime."""
