"""The controller's shell on every node, and the client of the active controller.

The rules of the controller are in coordinator/controller and coordinator/metadata.
"""
