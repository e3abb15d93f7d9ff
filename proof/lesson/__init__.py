"""`oncelog lesson`: five faults that a reader does, and what each does to an application."""
