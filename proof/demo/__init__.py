"""demo: `oncelog demo` processes real data on a cluster with failing nodes, and gives a verdict.

It has the flights, two engines that process them (plain workers, a Spark job), and faults aimed at
work in flight. Only the command line imports it. Begin with run.py.
"""
