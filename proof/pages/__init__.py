"""HTML of a run's or a cluster's data, by functions without a server, an extra or a network."""
