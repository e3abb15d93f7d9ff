"""What is wrong with an application, from the requests that it makes.

Begin with `diagnosis.py`; `catalogue.py` has the findings, `seen.py` what they are made from.
"""
