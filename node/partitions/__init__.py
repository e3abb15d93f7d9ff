"""The replicas that this broker hosts, as leader or follower, and their maintenance.

Begin with replica_manager.py, then hosted_partition.py and roles.py.
"""
