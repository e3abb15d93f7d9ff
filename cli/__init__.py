"""The command line, with one file for each family of commands.

The commands only parse options and print results. Everything else is in the packages deploy, proof,
client and pipeline, which never import this package. Begin with main.py, which has the rules of
these files.
"""
