"""Sending, from a record to its acknowledgement. Begin with sender.py."""
