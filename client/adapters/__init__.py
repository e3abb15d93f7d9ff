"""Adapters for frameworks that the application has installed, to use them in a writer's block.

No other module imports an adapter.
"""
