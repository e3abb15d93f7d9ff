"""node/listener/tls: the TLS between the event loop's plain transport and a connection."""
