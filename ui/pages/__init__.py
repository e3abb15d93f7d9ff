"""HTML of the views, created from documents, without server, clock and cluster."""
