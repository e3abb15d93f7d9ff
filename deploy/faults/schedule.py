"""Which faults come, in which order, with which random numbers: drawn from the seed. Pure.

A schedule takes its kinds in an order that is shuffled anew when all have come, so each kind comes
early and often. A fault is a kind and some numbers in [0, 1); their meaning (which node, how long)
is decided when it happens, since roles move. So the same seed gives the same schedule, whatever the
machine does. Chaos runs three schedules side by side, one fault at a time in each: for nodes, for
the links between them, and for clients and their topics. Its kinds:

  kill                 -9 of a node, by its number
  kill-leader          ... of the leader of a partition
  kill-transaction-coordinator, kill-group-coordinator, kill-controller
  kill-all             ... of all nodes at once
  die-at-a-moment      -9 by its own hand at a fault point, between two steps of its work
  pause                SIGSTOP beyond the session's end: the others take over, then it wakes
  stutter              short stops and goes: a slow node
  restart              stopped gracefully, and started
  wipe                 stopped, its data removed, started under the same id
  disk-full, disk-error   writes fail in one place (ENOSPC, EIO); then it is started anew
  damage               a byte of one replica's log or index files is another, while its node runs
                       or before a start: it is repaired, or copied anew
  clock-jump           the wall clock of a node goes hours ahead or back, and returns

  isolate              one node is cut off from the others, both ways
  isolate-one-way      it receives from them and they do not receive from it, or the reverse
  cut-pair             two nodes do not reach each other, both reach the rest
  majorities-ring      each node receives from itself and the next ones only: majorities differ
  bisect               two halves (four nodes and more)
  delay                all messages of a node come late
  hold                 all messages of a node to another are kept back, and come at once later
  keep-frames          single messages are kept back; those behind them overtake them

  worker-kill          -9 of a process of clients; worker-pause: it stands still past its sessions
  member-joins         a member joins the group, and leaves
  client-cut           a process of clients loses a broker; client-delay; client-hold: one request
                       is held, and arrives when its client already uses another connection
  topic-churn          a topic is made, written to and deleted; config-change; reassignment;
  elect-leaders        the preferred replicas lead again, or others become preferred

On a secured cluster also:
  certificate-expires  new connections meet a certificate that has expired
  password-change      the clients' user has another password
  reauthentication-fails   it is gone until a login has ended, inside a transaction
  acl-taken            the right to write is taken away inside a transaction
All of these are given back.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

NODES, LINKS, CLIENTS = "nodes", "links", "clients"
KINDS_BY_TARGET: dict[str, tuple[str, ...]] = {
    NODES: (
        "kill", "kill-leader", "kill-transaction-coordinator", "kill-group-coordinator",
        "kill-controller", "kill-all", "die-at-a-moment", "pause", "stutter", "restart", "wipe",
        "disk-full", "disk-error", "damage", "clock-jump",
    ),
    LINKS: (
        "isolate", "isolate-one-way", "cut-pair", "majorities-ring", "bisect", "delay", "hold",
        "keep-frames",
    ),
    CLIENTS: (
        "worker-kill", "worker-pause", "member-joins", "client-cut", "client-delay",
        "client-hold", "topic-churn", "config-change", "reassignment", "elect-leaders",
        "certificate-expires", "password-change", "reauthentication-fails", "acl-taken",
    ),
}  # fmt: skip
NEED_PLAIN_TEXT = frozenset({"client-hold"})
NEED_LOGINS = frozenset(
    {"certificate-expires", "password-change", "reauthentication-fails", "acl-taken"}
)
ALL_KINDS = tuple(kind for kinds in KINDS_BY_TARGET.values() for kind in kinds)
KINDS = tuple(kind for kind in ALL_KINDS if kind not in NEED_LOGINS)
SECURED_KINDS = tuple(kind for kind in ALL_KINDS if kind not in NEED_PLAIN_TEXT)
NEED_FOUR_NODES = frozenset({"bisect"})
NUMBERS = 4


@dataclass(slots=True)
class Fault:
    """One fault; `numbers` are in [0, 1); `target`: in words, once its effect was seen."""

    kind: str
    numbers: tuple[float, ...]
    target: str = ""

    def pick(self, which: int, of: Sequence[T]) -> T:
        """Return one of these, by a number."""
        return of[int(self.numbers[which] * len(of))]

    def turned(self, which: int, of: Sequence[T]) -> list[T]:
        """Return all of these, beginning with one of them, by a number."""
        at = self.pick(which, range(len(of)))
        return [*of[at:], *of[:at]]

    def between(self, which: int, least: float, most: float) -> float:
        """Return a value of this range, by a number."""
        return least + self.numbers[which] * (most - least)


def schedule(seed: str, kinds: Sequence[str]) -> Iterator[Fault]:
    """Yield faults of these kinds without end; each kind comes once before any comes again."""
    rng, order = random.Random(seed), list(kinds)
    while order:
        rng.shuffle(order)
        for kind in tuple(order):
            yield Fault(kind, tuple(rng.random() for _ in range(NUMBERS)))


def chaos_schedule(
    seed: int, target: str, *, nodes: int, kinds: Sequence[str] = KINDS
) -> Iterator[Fault]:
    """Yield the faults of one target, of these kinds; none when no kind is left."""
    possible = [
        kind
        for kind in KINDS_BY_TARGET[target]
        if kind in kinds and (nodes > 3 or kind not in NEED_FOUR_NODES)
    ]
    return schedule(f"oncelog chaos {seed} {target}", possible)
