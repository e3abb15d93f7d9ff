"""Functions that return HTML of a run's or a cluster's data. They need no server and no extra."""
