"""cluster: a cluster of broker processes on this machine; the lowest floor of deploy.

Begin with local_cluster.py (`oncelog.Cluster`). It recognises a node by its command line, its port,
its admin socket and its answers. Readiness and death are verified, never assumed.
"""
