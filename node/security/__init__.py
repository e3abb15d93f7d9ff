"""The rights of a client, by its principal."""
