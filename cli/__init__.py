"""cli: the command line, one file a family of commands; floor 8, nothing lies above it.

What a command does stands in the rooms below. Begin with main.py, which has the rules of these
files.
"""
