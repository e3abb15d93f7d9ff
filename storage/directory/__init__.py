"""storage/directory: a broker's data directory: whose it is, what lies in it."""
