"""The demo's faults, drawn from a seed; the same for every guarantee, kept or taken away.

Pure. The five kinds, and which guarantee stands against which:

  kill        -9 of a partition's leader while batches are in flight. Appended and replicated, but
              the answer died with the broker: the producer sends again. (idempotence; acks at all)
  stall       a follower stands still for longer than the producer's patience: acks=all waits, the
              producer gives up waiting and sends again what was appended. (idempotence)
  stall-kill  both followers stand still, the leader goes on, then it is killed and they go on: what
              the leader had alone is gone. Who acknowledged it, lied. (acks=all)
  blackout    one replica dies and misses something; the other two die at once; the first comes back
              before they do. Will it lead? (min.insync.replicas 2 and clean election)
  two         two kills with no pause between them but the first node's restart
"""

import random
from dataclasses import dataclass

KINDS = ("kill", "stall", "stall-kill", "blackout", "two")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: a kind, the partition whose leader or followers it hits, and its delays."""

    kind: str
    partition: int
    burst_s: float  # how long full speed lasts before the kill
    outage_s: float  # how long the node stays down


def plan(seed: int, *, partitions: int = 6) -> list[Fault]:
    """All kinds in an order drawn from the seed, with one more plain kill at each end."""
    dice = random.Random(f"oncelog demo {seed}")
    middle = list(KINDS)
    dice.shuffle(middle)
    return [draw(kind, dice, partitions) for kind in ("kill", *middle, "kill")]


def draw(kind: str, dice: random.Random, partitions: int) -> Fault:
    """One fault of this kind."""
    return Fault(
        kind=kind,
        partition=dice.randrange(partitions),
        burst_s=round(dice.uniform(0.05, 0.25), 3),
        outage_s=round(dice.uniform(0.2, 0.8), 3),
    )
