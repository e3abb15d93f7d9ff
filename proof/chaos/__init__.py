"""Runs a load on a cluster under faults, and judges it.

There are workloads (append, read_process_write, bank) as coroutines with our own client, and a
process with confluent-kafka. All operations are recorded for the judge. The runner injects faults
by a schedule drawn from a seed while the load runs, repairs them, reads everything and judges. The
workloads use no clock but the event loop's, no thread and only given random numbers, so the
simulator runs the same workloads. Begin with load/workloads.py for the load, run.py for the whole.
"""
