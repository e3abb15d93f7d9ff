"""The duties of the leader of the metadata group. The shell is node/controller."""
