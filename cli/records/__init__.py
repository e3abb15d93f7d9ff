"""Records as people read and write them: places in a log, templates, decoders, JSON lines."""
