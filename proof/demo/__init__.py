"""`oncelog demo`, which processes real data on a cluster with failing nodes, and gives a verdict.

The folder has the flights, two engines that process the flights (plain workers, a Spark job), and
faults aimed at work in flight. Only the command line imports it. Begin with run.py.
"""
