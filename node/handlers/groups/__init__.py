"""node/handlers/groups: consumer groups: finding coordinators, members, offsets, admin."""
