"""HTML of the views: documents in, text out; no server, no clock, no cluster."""
