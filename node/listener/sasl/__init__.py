"""node/listener/sasl: logins of a listener, which give a connection its principal for a session."""
