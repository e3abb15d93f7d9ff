"""client/groups: a member of a consumer group; begin with member.py."""
