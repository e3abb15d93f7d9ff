"""chaos: load on a cluster that is broken on purpose, and the verdict.

What it is: workloads (append, read_process_write, bank) as coroutines over our own client and as a
process over confluent-kafka, all recorded for the judge; a schedule of faults drawn from a seed;
the runner that does both at once, heals, reads everything and judges. What it is not: a part of a
broker. The workloads know no clock but the event loop's, no thread and no randomness but what they
are given, so the simulator runs the same ones. Begin with workloads.py for the load, run.py for
the whole.
"""
