"""bench: `oncelog bench`: what each guarantee costs, on any Kafka-compatible cluster.

Begin with replication.py; target.py is the cluster that is measured.
"""
