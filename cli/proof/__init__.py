"""Commands that test or compare systems; begin with conformance.py."""
