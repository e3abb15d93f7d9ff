"""The group coordinator's shell, which runs the rules of groups in coordinator/groups."""
