"""judge/history: what clients did and saw, written down as it happens, and read back.

Begin with schema.py; recorder.py writes, columns.py reads.
"""
