"""`oncelog lesson`: five faults that a reader causes, and the effect of each on an application."""
