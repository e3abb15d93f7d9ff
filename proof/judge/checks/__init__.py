"""judge/checks: one file a promise; catalogue.py beside this folder lists them."""
