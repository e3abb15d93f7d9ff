"""The search for mistakes of an application in its requests.

Begin with `diagnosis.py`. `catalogue.py` has the findings, and `seen.py` their inputs.
"""
