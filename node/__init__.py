"""One broker in one process. It may import runtime, wire, storage, replication and coordinator."""
