"""cluster: a cluster of broker processes on this machine; the ground floor of deploy.

Begin with local_cluster.py (`oncelog.Cluster`). It knows a node by its command line, its port, its
admin socket and its answers; readiness and death are proved, never assumed.
"""
