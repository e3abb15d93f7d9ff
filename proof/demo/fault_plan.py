"""The demo's faults, drawn from a seed, the same with and without --break.

The file does no I/O. The kinds, each with the guarantee that it tests. On brokers, while batches
are in flight:

  kill        kill -9 of a partition's leader. The batch is replicated, but its answer is lost: the
              producer sends it again. (idempotence; acks at all)
  stall       a follower is paused for longer than the producer's timeout: acks=all waits, the
              producer stops waiting and sends the appended batch again. (idempotence)
  stall-kill  both followers are paused, the leader continues, then it is killed and they resume:
              what only the leader had is lost, acknowledged or not. (acks=all)
  blackout    one replica dies and misses some records; the other two die at the same time; the
              first is restarted before they are. Will it lead? (min.insync.replicas 2 and clean
              election)
  two         two kills with no pause between them but the first node's restart

On the plain workers, while a transaction is open:

  transaction kill -9 of the node that coordinates a worker's transactions: before the decision, or
              in the middle of it. The next one completes the decision. (two phases)
  group       kill -9 of the node that coordinates the group and holds its offsets. (offsets in the
              transaction)
  worker      kill -9 of a worker: another takes over its partitions from the last committed offset,
              and its successor ends its transaction. (the transactional id)
  zombie      a worker is paused beyond its session; another has done its work when it resumes and
              continues where it was. (the group's metadata with the offsets)

On the Spark job, while a transaction is open:

  sink        kill -9 of the node that coordinates one of the sink's transactions. (prepared
              transactions, and a recorded decision)
  driver-jvm  kill -9 of the driver's Java: the job is started again from its checkpoint, commits
              what was decided and aborts the rest. (the decision, in a transaction of its own)
  driver-python  kill -9 of the driver's Python; Java ends with it. The same.
  python-worker  kill -9 of the Python process that runs a task: Spark runs the task again, and the
              first attempt's transaction is abandoned. (one transaction for each attempt)
"""

from collections.abc import Sequence
from itertools import islice

from ...deploy.faults.schedule import Fault, schedule

OF_BROKERS = ("kill", "stall", "stall-kill", "blackout", "two")
OF_TRANSACTIONS = ("transaction", "group", "worker", "zombie")
OF_SPARK = ("sink", "driver-jvm", "driver-python", "python-worker")
MOMENTS = ("began", "committing")
BURST_S, OUTAGE_S = (0.05, 0.25), (0.2, 0.8)


def plan(seed: int, kinds: Sequence[str]) -> list[Fault]:
    """Return each of these kinds once, in an order drawn from the seed.

    Each fault has three random numbers. Number 0 chooses the partition, worker or query. Number 1
    chooses the progress of the worker's transaction, or the time at full speed before the kill.
    Number 2 chooses how long the node stays down.
    """
    return list(islice(schedule(f"oncelog demo {seed}", kinds), len(kinds)))


def outage_s(fault: Fault) -> float:
    return fault.between(2, *OUTAGE_S)


def burst_s(fault: Fault) -> float:
    return fault.between(1, *BURST_S)
