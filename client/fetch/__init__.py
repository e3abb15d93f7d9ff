"""The reading side of a client, from a leader's answer to records. Begin with fetcher.py."""
