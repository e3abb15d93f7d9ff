"""`oncelog prove`, which tests whether any application is exactly once; begin with `run.py`."""
