"""chaos/load: clients of a chaos run: workloads, and their processes.

Every operation is recorded in the history (judge/history). Begin with workloads.py; worker.py is
the process.
"""
