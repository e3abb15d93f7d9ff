"""faults: what is done to nodes, links, clients and processes, and proved to have happened.

The schedule is pure; faulty_node.py is a node that can be broken inside.
"""
