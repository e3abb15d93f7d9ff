"""HTML of a run's or a cluster's data. The functions need no server, no extra and no network."""
