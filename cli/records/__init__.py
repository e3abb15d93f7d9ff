"""Conversions of records and offsets between bytes and the text that users type and read.

The files are for offsets, templates, decoders, encoders, and records as lines of JSON.
"""
