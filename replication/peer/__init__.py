"""replication/peer: the link between brokers; begin with transport.py."""
