"""Encoding and decoding of Kafka's bytes, without any I/O.

This folder may import only `runtime`.
"""
