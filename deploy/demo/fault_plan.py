"""The demo's faults, drawn from a seed; the same for every guarantee, kept or taken away.

Pure. The kinds, and which guarantee stands against which. Of brokers, while batches are in flight:

  kill        -9 of a partition's leader. Appended and replicated, but the answer died with the
              broker: the producer sends again. (idempotence; acks at all)
  stall       a follower stands still for longer than the producer's patience: acks=all waits, the
              producer gives up waiting and sends again what was appended. (idempotence)
  stall-kill  both followers stand still, the leader goes on, then it is killed and they go on: what
              the leader had alone is gone. Who acknowledged it, lied. (acks=all)
  blackout    one replica dies and misses something; the other two die at once; the first comes back
              before they do. Will it lead? (min.insync.replicas 2 and clean election)
  two         two kills with no pause between them but the first node's restart

Of the plain workers, while a transaction is open:

  transaction -9 of the node that coordinates a worker's transactions: before the decision, or in
              the middle of it. The next one finishes what was decided. (two phases)
  group       -9 of the node that coordinates the group and holds its offsets. (offsets in the
              transaction)
  worker      -9 of a worker: another takes its partitions over from the last committed offset, and
              its successor ends its transaction. (the transactional id)
  zombie      a worker stands still past its session; another has done its work when it wakes and
              goes on where it was. (the group's metadata with the offsets)

Of the Spark job, while a transaction is open:

  sink        -9 of the node that coordinates one of the sink's transactions. (prepared
              transactions, and a decision that is written down)
  driver-jvm  -9 of the driver's Java: the job is started again from its checkpoint, finishes what
              was decided and drops what was not. (the decision, in a transaction of its own)
  driver-python  -9 of the driver's Python; Java ends with it. The same.
  python-worker  -9 of the Python process that carries out a task: Spark carries it out once more,
              and the first attempt's transaction is nobody's. (one transaction an attempt)
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

OF_BROKERS = ("kill", "stall", "stall-kill", "blackout", "two")
OF_TRANSACTIONS = ("transaction", "group", "worker", "zombie")
OF_SPARK = ("sink", "driver-jvm", "driver-python", "python-worker")
KINDS = OF_BROKERS + OF_TRANSACTIONS
MOMENTS = ("began", "committing")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: a kind, whom it hits, and its delays."""

    kind: str
    partition: int  # its leader or followers are struck
    worker: int  # it, or who coordinates it, is struck; with Spark: the query
    moment: str  # how far the worker's transaction is then
    burst_s: float  # how long full speed lasts before the kill
    outage_s: float  # how long the node stays down


def plan(
    seed: int, *, partitions: int = 6, workers: int = 2, kinds: Sequence[str] = KINDS
) -> list[Fault]:
    """All these kinds in an order drawn from the seed."""
    dice = random.Random(f"oncelog demo {seed}")
    shuffled = list(kinds)
    dice.shuffle(shuffled)
    return [draw(kind, dice, partitions, workers) for kind in shuffled]


def draw(kind: str, dice: random.Random, partitions: int = 6, workers: int = 2) -> Fault:
    """One fault of this kind."""
    return Fault(
        kind=kind,
        partition=dice.randrange(partitions),
        worker=dice.randrange(workers),
        moment=dice.choice(MOMENTS),
        burst_s=round(dice.uniform(0.05, 0.25), 3),
        outage_s=round(dice.uniform(0.2, 0.8), 3),
    )
