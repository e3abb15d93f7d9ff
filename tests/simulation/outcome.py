"""The values that describe a simulation, which are faults, shapes and outcomes."""

from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One injected fault with its time, duration and target.

    `at_s` counts from the time at which the cluster serves. `target` names nodes (`1`, `1,2`),
    links (`1>2`, `c1>2` from a client) or a role (`controller`, `leader` of append/0, or `group`
    and `transactions` for their coordinators). The node of a role is determined when the fault
    occurs.
    """

    at_s: float
    kind: str
    target: str = ""
    seconds: float = 0.0
    amount: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind}@{self.at_s:g}+{self.seconds:g}/{self.amount:g}:{self.target}"

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """Return the fault that str() has written as this text.

        Raises ValueError for another text.
        """
        head, _, target = text.partition(":")
        kind, _, times = head.partition("@")
        at, _, rest = times.partition("+")
        seconds, _, amount = rest.partition("/")
        try:
            numbers = float(at), float(seconds), float(amount)
        except ValueError:
            raise ValueError(f"{text!r} is no fault: write KIND@AT+SECONDS/AMOUNT:TARGET") from None
        return cls(at_s=numbers[0], kind=kind, target=target, seconds=numbers[1], amount=numbers[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size, duration and load of a simulated cluster. Times are virtual seconds.

    `nodes` is 1, 3, 4 or 5. `seconds` is the duration of the safety phase, and `faults` the number
    of faults in it. With `pace` 1 the clients are busy, and with 10 they pause ten times as long.
    `durable` sets flush.messages=1 for all topics, so that power may be cut on all nodes at once.

    `old_clients` is the number of old clients in each of the two client processes. `segment_bytes`
    is for the topics, or 0 for a random size. `size` is the number of partitions and transactional
    ids that are created at a time. `step_cpu_ms` limits the CPU time of one callback of a node's
    loop, or is 0. `broker` has further keys of server.properties. `kinds` has the kinds of faults,
    or is empty for all.
    """

    nodes: int = 3
    seconds: float = 20.0
    faults: int = 12
    pace: float = 1.0
    transaction_shards: int = 2
    old_clients: int = 1
    durable: bool = False
    segment_bytes: int = 0
    size: int = 0
    step_cpu_ms: int = 250
    kinds: tuple[str, ...] = ()
    broker: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Return the values that are not defaults, as in `nodes=5,durable=1,kinds=kill+cut`."""
        usual, parts = Shape(), list[str]()
        for each in fields(self):
            value = getattr(self, each.name)
            if value == getattr(usual, each.name):
                continue
            if each.name == "broker":
                parts += [f"{key}={given}" for key, given in self.broker]
            elif each.name == "kinds":
                parts.append("kinds=" + "+".join(self.kinds))
            else:
                parts.append(f"{each.name}={value:g}")
        return ",".join(parts)

    @classmethod
    def parse(cls, text: str) -> "Shape":
        """Return the shape of this name in NAMED, or the one that str() has written as this text.

        Raises ValueError for another text.
        """
        if text in NAMED:
            return NAMED[text]
        usual, found, broker = cls(), dict[str, Any](), list[tuple[str, str]]()
        known = {each.name for each in fields(cls)}
        for part in filter(None, text.split(",")):
            name, is_given, value = part.partition("=")
            if not is_given or not ("." in name or name in known):
                raise ValueError(f"{part!r} is no part of a shape; see Shape in outcome.py")
            if "." in name:
                broker.append((name, value))
            elif name == "kinds":
                found[name] = tuple(value.split("+"))
            else:
                found[name] = type(getattr(usual, name))(float(value))
        return cls(**found, broker=tuple(broker))


# More faults than the seeds' own shapes have. See docs/simulation.md, "What it has found".
NAMED = {
    "dense": Shape(seconds=15.0, faults=45),
    "power": Shape(
        seconds=24.0,
        faults=20,
        durable=True,  # so that power may fail at any time, and on all machines
        kinds=(
            "disk-full", "sync-error", "slow-disk", "kill", "kill-all", "crash-io", "power",
            "power-io", "power-all", "cut", "pause",
        ),
        # Leader changes truncate logs, and by then the disk has synced what is removed.
        broker=(("log.flush.offset.checkpoint.interval.ms", "4000"),),
    ),
    "links": Shape(
        seconds=20.0,
        faults=24,
        old_clients=3,
        kinds=(
            "cut", "cut-clients", "one-way", "slow-links", "hold-link", "hold-client", "keep",
            "reset-links", "reset-clients", "noise", "kill",
        ),
    ),
    "disks": Shape(
        seconds=25.0,
        faults=14,
        pace=2.0,
        segment_bytes=160,  # so that removed and new records are in several of them
        # Leader changes truncate logs while they are flushed, and below what is synced.
        broker=(
            ("log.flush.interval.messages", "25"),
            ("log.flush.offset.checkpoint.interval.ms", "5000"),
        ),
        kinds=(
            "disk-full", "disk-errors", "sync-error", "slow-disk", "flip", "crash-io", "power",
            "power-io", "power-truncation", "cut", "stop",
        ),
    ),
    # One machine's files; the others may be killed or cut off meanwhile.
    "damage": Shape(
        seconds=15.0,
        faults=10,
        pace=2.0,
        segment_bytes=2000,
        broker=(("log.index.interval.bytes", "200"),),
        kinds=("damage", "kill", "stop", "cut", "pause"),
    ),
    # So large that a step shows work that grows with a number, and small enough to run.
    "size": Shape(
        seconds=8.0,
        faults=3,
        pace=8.0,
        size=300,
        step_cpu_ms=100,
        kinds=("kill", "pause", "stop", "cut", "crash-point"),
    ),
}  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The outcome of one run.

    `violations` has a sentence for each violation, and `names` the names of the violated checks of
    the judge and of invariants (`lost-write`, `two leaders`). `history` is the recorded history.
    """

    seed: int
    shape: Shape
    violations: list[str] = field(default_factory=list[str])
    names: set[str] = field(default_factory=set[str])
    faults: list[Fault] = field(default_factory=list[Fault])
    trace_hash: str = ""
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    events: int = 0
    operations: int = 0
    transactions: int = 0
    history: Any = None

    @property
    def is_clean(self) -> bool:
        """Return whether the run had no violation."""
        return not self.violations
