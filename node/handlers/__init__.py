"""One function an API; each header names versions and KIPs."""
