"""This broker's registration and heartbeats, and its view of other brokers."""
