"""Membership of a consumer group; begin with member.py."""
