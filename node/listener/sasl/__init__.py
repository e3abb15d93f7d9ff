"""Logins of a listener: who a connection acts for, and until when."""
