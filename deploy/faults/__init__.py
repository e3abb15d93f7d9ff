"""Faults of nodes, links, clients and processes, each with proof of its effect.

The schedule is pure. faulty_node.py is a node with faults inside the process.
"""
