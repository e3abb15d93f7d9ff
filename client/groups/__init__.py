"""Membership of a consumer group. Begin with member.py."""
