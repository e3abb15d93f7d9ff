"""TLS of a listener, between the event loop's plain transport and its connections."""
