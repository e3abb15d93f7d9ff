"""Diagnose the mistakes of an application from the requests that it makes.

Begin with `diagnosis.py`; `catalogue.py` has the findings, `seen.py` their inputs.
"""
