"""demo: `oncelog demo`: real data through a cluster of failing nodes, and the verdict.

What it is: the flights, two engines that process them (plain workers, a Spark job), faults aimed at
work in flight. What it is not: a library; no other room but the command line imports it. Begin with
run.py.
"""
