"""The operations of clients, which are recorded as they happen, and read back.

Begin with schema.py. recorder.py writes, and columns.py reads.
"""
