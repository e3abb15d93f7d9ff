"""The HTTP server of the page."""
