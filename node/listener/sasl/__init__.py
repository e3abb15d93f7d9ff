"""Logins on a listener, which give a connection its principal for a session."""
