"""`oncelog bench`, which measures the cost of each guarantee, on any Kafka-compatible cluster.

Begin with replication.py. The measured cluster is in target.py.
"""
