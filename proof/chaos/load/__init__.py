"""The clients of a chaos run, with workloads and processes.

Every operation is recorded in the history (judge/history). Begin with workloads.py. worker.py is
the process.
"""
