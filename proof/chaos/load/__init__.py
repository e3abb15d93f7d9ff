"""The clients that put load on the cluster in a chaos run.

Every operation is recorded in the history (judge/history). Begin with workloads.py. worker.py is
the program of a client process.
"""
