"""controller: the duties of the leader of the metadata group; its shell is node/controller."""
