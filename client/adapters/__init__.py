"""Dual-write and outbox blocks for frameworks that the application has installed.

No other module imports an adapter.
"""
