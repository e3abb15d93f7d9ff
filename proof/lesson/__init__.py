"""`oncelog lesson`, with five faults that the reader injects, and their effects."""
