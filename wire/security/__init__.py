"""What clients and brokers share of authentication: secrets, JAAS texts."""
