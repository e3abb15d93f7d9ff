"""The schedule of faults: their order and random numbers, drawn from the seed.

The file does no I/O.

A schedule shuffles its kinds, takes each once, and shuffles them again, so each kind comes early
and often. A fault is a kind and some numbers in [0, 1). Their meaning (which node, how long) is
decided when the fault is made, since roles change. So the same seed gives the same schedule on any
machine. Chaos runs three schedules side by side, each with one fault at a time: for nodes, for the
links between nodes, and for clients and their topics. The kinds are:

  kill                 kill -9 of a node, by its number
  kill-leader          ... of the leader of a partition
  kill-transaction-coordinator, kill-group-coordinator, kill-controller
  kill-all             ... of all nodes at the same time
  die-at-a-moment      kill -9 of itself at a fault point, between two steps of its work
  pause                SIGSTOP beyond the session timeout: others take over, then it resumes
  stutter              short pauses one after another: a slow node
  restart              stopped gracefully, and started
  wipe                 stopped, its data removed, started under the same id
  disk-full, disk-error   writes fail in one place (ENOSPC, EIO); then it is restarted
  damage               a byte of one replica's log or index files is changed, while its node runs
                       or before a start: it is repaired, or copied again
  clock-jump           the wall clock of a node jumps by hours, and returns

  isolate              one node is cut off from the others, in both directions
  isolate-one-way      a node receives from the others but does not reach them, or the reverse
  cut-pair             two nodes do not reach each other, both reach the rest
  majorities-ring      each node receives from itself and the next ones only: majorities differ
  bisect               two halves (four nodes and more)
  delay                all messages of a node are delayed
  hold                 all messages of a node to another are held, and arrive together later
  keep-frames          single messages are held; later messages overtake them

  worker-kill          kill -9 of a process of clients; worker-pause: a pause beyond its sessions
  member-joins         a member joins the group, and leaves
  client-cut           a process of clients loses a broker; client-delay; client-hold: one request
                       is held, and arrives when its client already uses another connection
  topic-churn          a topic is created, written to and deleted; config-change; reassignment;
  elect-leaders        the preferred replicas become leaders again, or others become preferred

On a secured cluster also:
  certificate-expires  new connections get an expired certificate
  password-change      the clients' user gets another password
  reauthentication-fails   the user is missing until a login has failed, inside a transaction
  acl-taken            the permission to write is removed inside a transaction
All of these are undone.
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
    """A fault of a schedule.

    numbers: random numbers in [0, 1), which decide the details. target: text, set once the fault's
    effect was seen.
    """

    kind: str
    numbers: tuple[float, ...]
    target: str = ""

    def pick(self, which: int, of: Sequence[T]) -> T:
        """Return an item of a sequence, selected by the random number at index `which`."""
        return of[int(self.numbers[which] * len(of))]

    def turned(self, which: int, of: Sequence[T]) -> list[T]:
        """Return the sequence, rotated so that it begins with the item that `pick` would return."""
        at = self.pick(which, range(len(of)))
        return [*of[at:], *of[:at]]

    def between(self, which: int, least: float, most: float) -> float:
        """Return a value between `least` and `most`, by the random number at index `which`."""
        return least + self.numbers[which] * (most - least)


def schedule(seed: str, kinds: Sequence[str]) -> Iterator[Fault]:
    """Yield faults of these kinds for ever, each kind once before any kind comes again."""
    rng, order = random.Random(seed), list(kinds)
    while order:
        rng.shuffle(order)
        for kind in tuple(order):
            yield Fault(kind, tuple(rng.random() for _ in range(NUMBERS)))


def chaos_schedule(
    seed: int, target: str, *, nodes: int, kinds: Sequence[str] = KINDS
) -> Iterator[Fault]:
    """Yield the faults of one target ("nodes", "links" or "clients"), of the allowed kinds.

    It yields nothing if none of these kinds is possible for the target.
    """
    possible = [
        kind
        for kind in KINDS_BY_TARGET[target]
        if kind in kinds and (nodes > 3 or kind not in NEED_FOUR_NODES)
    ]
    return schedule(f"oncelog chaos {seed} {target}", possible)
