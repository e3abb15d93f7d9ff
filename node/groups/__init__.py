"""node/groups: the group coordinator's shell; its rules stand in coordinator/groups."""
