"""deploy: a cluster on this machine: starting, faults, and inspection.

`cluster` starts nodes and verifies that they are up, paused or gone. `faults` kills nodes, cuts and
delays links, and changes answers. `inspect` explains transactions, groups and health. A node is
recognised by its command line, its port and its answers. Floor 6. Begin with
cluster/local_cluster.py.
"""
