"""`oncelog bench`, which measures the cost of each guarantee, on any Kafka-compatible cluster.

Begin with replication.py. Target.py is the measured cluster.
"""
