"""node/handlers/produce: Produce (API 0); begin with produce.py."""
