"""The TLS layer between the event loop's transport and a connection."""
