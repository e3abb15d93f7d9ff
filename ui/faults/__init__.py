"""What the page does to a cluster on this machine: faults, and a load to see them by."""
