"""Client quotas (KIP-13, KIP-257): values, which one counts, and the rate it bounds. Pure."""
