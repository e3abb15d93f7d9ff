"""The API Produce, of which produce.py is the first file to read."""
