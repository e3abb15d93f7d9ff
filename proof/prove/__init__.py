"""`oncelog prove` tests whether any application is exactly once. Begin with `run.py`."""
