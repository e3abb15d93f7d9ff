"""client: our Python client of the Kafka protocol; floor 2, stands on wire only.

What it is: connections, a view of the cluster, administration, an idempotent producer and a
reader of assigned partitions, asyncio first. What it is not: part of a broker; the two meet on
the wire, so everything here also works against Apache Kafka. Begin with connection.py.
"""
