"""Commands to look at a cluster while it works."""
