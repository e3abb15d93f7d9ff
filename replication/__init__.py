"""Replication between brokers, with leaders, followers, high watermark, ISR and the peer link.

This folder may import runtime, wire and storage.
"""
