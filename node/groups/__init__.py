"""node/groups: the group coordinator's shell; its rules are in coordinator/groups."""
