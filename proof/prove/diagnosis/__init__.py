"""Find the mistakes of an application in its requests.

Begin with `diagnosis.py`; `catalogue.py` has the findings, `seen.py` their inputs.
"""
