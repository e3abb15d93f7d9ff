"""The link between brokers; begin with transport.py."""
