"""The group coordinator with its log, timers and answers. The rules are in coordinator/groups."""
