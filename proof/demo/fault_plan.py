"""The demo's faults, drawn from a seed, the same with and without --break.

The file does no I/O. After each kind stands the guarantee that it tests. On brokers, while batches
are in flight:

  kill        kill -9 of a partition's leader. The batch is replicated, but its answer is lost, so
              the producer sends the batch again. (idempotence; acks at all)
  stall       a follower is paused for longer than the producer's timeout. The leader waits for it
              (acks=all), and the producer sends the appended batch again. (idempotence)
  stall-kill  both followers are paused, the leader is killed after a while, and the followers are
              resumed. Records that only the leader had are lost; none was acknowledged. (acks=all)
  blackout    one replica dies and misses some records; the other two die at the same time; the
              first is restarted with one of them, and must not lead. (min.insync.replicas 2 and
              clean election)
  two         two kills, with only the restart of the first node between them

On the plain workers, while a transaction is open:

  transaction kill -9 of the node that coordinates a worker's transactions, before or after it has
              written the decision to commit. Its successor completes a decided transaction. (two
              phases of EndTxn)
  group       kill -9 of the node that coordinates the group and holds its offsets. (offsets in the
              transaction)
  worker      kill -9 of a worker. Another worker continues its partitions at the last committed
              offset, and the restarted worker ends the transaction. (the transactional id)
  zombie      a worker is paused for longer than its session timeout, and resumed when another
              worker has processed its inputs. (the group's metadata with the offsets)

On the Spark job, while a transaction is open:

  sink        kill -9 of the node that coordinates one of the sink's transactions. (prepared
              transactions, and a recorded decision)
  driver-jvm  kill -9 of the driver's Java. The job is started again from its checkpoint, commits
              the decided transactions and aborts the others. (the decision, in a transaction of
              its own)
  driver-python  kill -9 of the driver's Python, with which Java ends. The job is started again as
              above. (the decision, in a transaction of its own)
  python-worker  kill -9 of the Python process that runs a task. Spark runs the task again, and the
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

    Three random numbers of each fault are used. Number 0 chooses the partition, worker or query.
    Number 1 chooses the progress of the worker's transaction, or the time at full speed before the
    kill. Number 2 chooses how long the node stays down.
    """
    return list(islice(schedule(f"oncelog demo {seed}", kinds), len(kinds)))


def outage_s(fault: Fault) -> float:
    return fault.between(2, *OUTAGE_S)


def burst_s(fault: Fault) -> float:
    return fault.between(1, *BURST_S)
