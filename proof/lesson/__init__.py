"""`oncelog lesson`: five faults that the reader makes, and the effect of each on an application."""
