"""The checks, with one file for each promise. Catalogue.py in the parent folder lists them."""
