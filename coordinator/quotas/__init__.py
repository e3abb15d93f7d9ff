"""Client quotas (KIP-13, KIP-257), with their precedence and the measured rates, as pure code."""
