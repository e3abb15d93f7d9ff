"""deploy: what people use: local cluster, faults, command line, demo, benchmarks.

What it is: a launcher that proves what it claims, and programs that talk to a cluster by the Kafka
protocol alone, so that all but the launcher also run against Apache Kafka. What it is not: part of
a broker; it knows a node by its command line, its port and its answers. Floor 6. Begin with
local_cluster.py, then deploy/cli/main.py.
"""
