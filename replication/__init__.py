"""Replication between brokers: leader and follower logic, high watermark, ISR, peer link.

It may import runtime, wire and storage.
"""
