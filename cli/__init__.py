"""The command line, with one file for each family of commands, on the top floor.

The lower parts implement the commands. Begin with main.py, which has the rules of these files.
"""
