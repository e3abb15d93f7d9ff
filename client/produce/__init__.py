"""Sending, from a record to its acknowledgement; begin with sender.py."""
