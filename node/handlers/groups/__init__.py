"""The APIs of groups: coordinators, members, offsets, administration."""
