"""Commands that show the state, events and metrics of a running cluster."""
