"""deploy: a cluster on this machine, launched, broken on purpose and looked into.

`cluster` launches nodes and proves that they are up, paused or gone; `faults` kills, cuts, slows
and answers wrongly; `inspect` explains transactions, groups and health. A node is known by its
command line, its port and its answers. Floor 6. Begin with cluster/local_cluster.py.
"""
