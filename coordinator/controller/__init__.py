"""controller: what the leader of the metadata group watches over; its shell is node/controller."""
