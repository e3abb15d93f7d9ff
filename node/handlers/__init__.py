"""node/handlers: a function for each API; the head of each file names versions and KIPs."""
