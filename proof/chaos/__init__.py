"""chaos: load on a cluster under faults, and the verdict.

It has workloads (append, read_process_write, bank) as coroutines over our own client and as a
process over confluent-kafka, all recorded for the judge; a schedule of faults drawn from a seed;
and the runner that does both at once, heals, reads everything and judges. It is no part of a
broker. The workloads use no clock but the event loop's, no thread and only given randomness, so the
simulator runs the same ones. Begin with load/workloads.py for the load, run.py for the whole.
"""
