"""The duties of the leader of the metadata group, as pure code. Its I/O is in node/controller."""
