"""The checks, with one file for each promise. The list is catalogue.py in the parent folder."""
