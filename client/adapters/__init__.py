"""adapters: dual-write and outbox blocks for frameworks that the program has installed.

No other module imports them.
"""
