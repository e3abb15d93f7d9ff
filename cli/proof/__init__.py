"""Commands that test or compare systems. Begin with conformance.py."""
