"""HTML of a run's or a cluster's data: data in, text out; no server, no extra, no network."""
