"""The exactly-once sink. Begin with sink.py, then protocol.py."""
