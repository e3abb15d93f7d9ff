"""chaos/load: clients of a chaos run: workloads, and the processes that they run in.

Every operation goes into the history (judge/history). Begin with workloads.py; worker.py is the
process.
"""
