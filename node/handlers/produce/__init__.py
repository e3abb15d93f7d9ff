"""node/handlers/produce: Produce (API 0), from its bytes to its answer; begin with produce.py."""
