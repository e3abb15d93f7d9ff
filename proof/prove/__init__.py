"""`oncelog prove`: is an application that somebody else wrote exactly once? Begin with `run.py`."""
