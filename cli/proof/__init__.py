"""proof: commands that measure a cluster against another; begin with conformance.py."""
