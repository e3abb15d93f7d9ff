"""The checks, with one file for each promise; catalogue.py in the parent folder lists them."""
