"""Records as users read and write them: positions in a log, templates, decoders, JSON lines."""
