"""The link between brokers. Begin with transport.py."""
