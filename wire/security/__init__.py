"""The authentication code that clients and brokers share: secrets, JAAS texts."""
