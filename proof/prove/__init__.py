"""`oncelog prove`: test whether any application is exactly once; begin with `run.py`."""
