"""A cluster of broker processes on this machine, the lowest part of deploy.

Begin with local_cluster.py (`oncelog.Cluster`). A node is recognised by its command line, its port,
its admin socket and its answers. Readiness and death are verified, never assumed.
"""
