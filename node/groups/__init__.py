"""The group coordinator's shell; the rules of groups are in coordinator/groups."""
