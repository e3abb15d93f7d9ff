"""faults: faults of nodes, links, clients and processes, and the proof that they happened.

The schedule is pure; faulty_node.py is a node that can be broken inside.
"""
