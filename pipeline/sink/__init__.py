"""The exactly-once sink; begin with sink.py, then protocol.py."""
