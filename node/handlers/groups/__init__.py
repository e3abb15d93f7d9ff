"""node/handlers/groups: the APIs of groups: coordinators, members, offsets, administration."""
