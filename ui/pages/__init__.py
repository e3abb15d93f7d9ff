"""HTML of the views, made from documents; no server, no clock, no cluster."""
