"""`oncelog prove`, which tests whether any application is exactly once. Begin with `run.py`."""
