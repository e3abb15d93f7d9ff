"""Finds mistakes of an application in the requests that it sends.

Begin with `diagnosis.py`. `catalogue.py` has the findings, and `seen.py` their inputs.
"""
