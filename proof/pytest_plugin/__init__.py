"""pytest_plugin: a real cluster in tests, and faults while they run; begin with plugin.py.

pytest imports plugin.py in every project where oncelog is installed: nothing else is imported
before a test asks for a cluster. docs/testing.md is the page for users.
"""
