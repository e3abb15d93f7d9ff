"""HTML of the views, created from the JSON documents of the API, without I/O and clock."""
