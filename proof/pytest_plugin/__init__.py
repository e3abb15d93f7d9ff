"""The pytest plugin: a real cluster in tests, and faults while they run. Begin with plugin.py.

pytest imports plugin.py in every project where oncelog is installed, so nothing else is imported
before a test uses a cluster. docs/testing.md is the page for users.
"""
