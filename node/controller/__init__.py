"""The controller's connections to Raft, timers and other brokers, and the client of the controller.

The rules of the controller are in coordinator/controller and coordinator/metadata.
"""
