"""The duties of the leader of the metadata group; the shell is node/controller."""
