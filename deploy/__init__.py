"""Local clusters of broker processes, faults injected into them, and reports on their state.

`cluster` starts nodes and verifies that they are up, paused or gone. `faults` kills nodes, cuts and
delays links, and changes answers. `inspect` explains transactions, groups and health. A node is
recognised by its command line, its port and its answers. Begin with cluster/local_cluster.py.
"""
