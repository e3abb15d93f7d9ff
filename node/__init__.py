"""One broker in one process.

The folder imports only runtime, wire, storage, replication and coordinator.
"""
