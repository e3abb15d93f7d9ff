"""The authentication code for clients and brokers, with secrets and JAAS texts."""
