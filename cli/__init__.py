"""cli: the command line, with one file for each family of commands; the top floor.

What a command does is implemented in the lower parts. Begin with main.py, which has the rules of
these files.
"""
