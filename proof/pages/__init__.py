"""HTML of what a run or a cluster shows: data in, text out; no server, no extra, no network."""
