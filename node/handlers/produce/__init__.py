"""The API Produce; begin with produce.py."""
