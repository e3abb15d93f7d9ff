"""node/controller: the controller's shell on every node, and the way to the active one.

What it decides stands in coordinator/controller and coordinator/metadata.
"""
