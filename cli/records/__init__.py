"""Records in the form of users, with positions in a log, templates, decoders, and JSON lines."""
