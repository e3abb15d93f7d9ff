"""node/security: the rights of a client, by its principal."""
