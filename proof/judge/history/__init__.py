"""judge/history: the operations of clients, recorded as they happen, and read back.

Begin with schema.py; recorder.py writes, columns.py reads.
"""
