"""Faults of nodes, links, clients and processes. A fault counts only if its effect was seen.

schedule.py draws the faults without I/O. faulty_node.py is the program of a node into which faults
can be injected.
"""
