"""Faults that strike a cluster while a test runs: one after another, drawn from a seed.

One node is struck at a time, and the next fault waits until every replica is in sync again, so the
cluster can always go on: what it acknowledged must be there afterwards. A fault counts when it is
proved (a kill: the pid is gone and the port refuses; a pause: the process is in state T; a link:
the node has said so). A fault that cannot be proved, or a cluster that does not become whole again,
fails the test. The same seed and test draw the same faults; when they strike depends on processes.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from ..cluster.failure import Failure
from ..cluster.local_cluster import Cluster

WHOLE_TIMEOUT_S = 40.0
POLL_S = 0.05
ABANDON_TIMEOUT_S = 3.0
DELAY_MS = (5, 60)
LASTS_S: dict[str, tuple[float, float]] = {
    "kill": (0.1, 1.2),
    "stop": (0.1, 1.2),
    "pause": (0.3, 2.5),  # from well below to well above the session timeout of 1.5 s
    "partition": (0.3, 2.5),
    "one-way": (0.3, 2.5),
    "slow": (0.5, 2.0),
}


@dataclass(frozen=True, slots=True)
class DrawnFault:
    """One fault of the schedule."""

    kind: str
    node_id: int
    after_s: float  # since the cluster was whole
    lasts_s: float
    delay_ms: int  # of a slow node


def read_kinds(text: str) -> tuple[str, ...]:
    """The kinds that a marker lists; Failure for others."""
    kinds = tuple(part.strip() for part in text.split(",") if part.strip())
    for kind in kinds:
        if kind not in LASTS_S:
            raise Failure(f"{kind!r} is no fault; there are {', '.join(LASTS_S)}.")
    return kinds


def draw(kinds: Sequence[str], node_ids: Sequence[int], seed: str) -> Iterator[DrawnFault]:
    """Faults without end. Each kind comes once before any comes again."""
    dice = random.Random(seed)
    after_s = (0.05, 0.3)
    while True:
        for kind in dice.sample(kinds, len(kinds)):
            yield DrawnFault(
                kind,
                dice.choice(node_ids),
                round(dice.uniform(*after_s), 3),
                round(dice.uniform(*LASTS_S[kind]), 3),
                dice.randint(*DELAY_MS),
            )
            after_s = (0.1, 0.8)


class Faults:
    """Strikes from `start` to `stop` in a thread of its own; `struck` counts."""

    def __init__(
        self,
        cluster: Cluster,
        schedule: Iterator[DrawnFault],
        *,
        tell: Callable[[str], None],
        alone: AbstractContextManager[object],
    ) -> None:
        """`alone` is held while something is done to a node: the test has verbs, too."""
        self._cluster, self._schedule = cluster, schedule
        self._tell, self._alone = tell, alone
        self._is_over = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="oncelog-faults", daemon=True)
        self._undoes = True
        self._to_mend: set[tuple[int, int]] = set()
        self.struck = 0
        self.problem: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, undo: bool = True) -> None:
        """Strike no more; `undo` what is in effect, however long that takes.

        Without it nobody waits for a node that does not answer: all of them are about to be killed.
        """
        self._undoes = undo
        self._is_over.set()
        self._thread.join(None if undo else ABANDON_TIMEOUT_S)

    def wait(self, count: int, timeout_s: float) -> None:
        """Return when so many faults have struck and are over; Failure when they do not come."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.struck >= count or self.problem is not None, timeout_s
            )
        if self.problem is not None:
            raise self.problem
        if self.struck < count:
            raise Failure(f"Only {self.struck} of {count} faults struck in {timeout_s:.0f} s.")

    def _run(self) -> None:
        try:
            for fault in self._schedule:
                self._wait_until_whole()
                if self._is_over.wait(fault.after_s):
                    return
                self._strike(fault)
                with self._changed:
                    self.struck += 1
                    self._changed.notify_all()
        except Exception as problem:  # raised in the test's thread
            with self._changed:
                self.problem = problem
                self._changed.notify_all()

    def _strike(self, fault: DrawnFault) -> None:
        node_id, others = fault.node_id, [i for i in self._cluster.node_ids if i != fault.node_id]
        with self._alone:
            match fault.kind:
                case "kill":
                    self._cluster.kill(node_id)
                    done = f"killed node {node_id}: pid gone, port refuses"
                case "stop":
                    self._cluster.stop(node_id)
                    done = f"stopped node {node_id}"
                case "pause":
                    self._cluster.pause(node_id)
                    done = f"paused node {node_id}: state T"
                case "slow":
                    self._cluster.slow(node_id, fault.delay_ms)
                    done = f"slowed node {node_id} by {fault.delay_ms} ms"
                case kind:
                    is_one_way = kind == "one-way"
                    self._cluster.partition([node_id], others, one_way=is_one_way)
                    done = f"cut node {node_id} off"
                    done += ": it hears, and is not heard" if is_one_way else ""
            self._tell(done)
        self._is_over.wait(fault.lasts_s)
        with self._alone:
            if self._undoes:  # else it would start a node behind the back of those who end them
                self._undo(fault)

    def _undo(self, fault: DrawnFault) -> None:
        """Only what this fault did: the test may have done more."""
        state = self._cluster.node(fault.node_id).status().state
        if fault.kind in ("kill", "stop"):
            if state == "down":
                self._cluster.start(fault.node_id)
                self._tell(f"started node {fault.node_id}: it serves")
        elif fault.kind == "pause":
            if state == "paused":
                self._cluster.resume(fault.node_id)
                self._tell(f"resumed node {fault.node_id}")
        else:
            self._to_mend |= self._links_of(fault)
            self._mend()
            self._tell(f"mended the links of node {fault.node_id}")

    def _links_of(self, fault: DrawnFault) -> set[tuple[int, int]]:
        """What a fault of links did where, as (node, its peer)."""
        node_id, others = fault.node_id, [i for i in self._cluster.node_ids if i != fault.node_id]
        links = {(node_id, peer) for peer in others}
        if fault.kind == "partition":
            links |= {(peer, node_id) for peer in others}
        return links

    def _mend(self) -> None:
        """Mend our links where a node can be asked: one that the test has paused is asked later."""
        states = {status.node_id: status.state for status in self._cluster.status()}
        for node_id, peer in sorted(self._to_mend):
            if states[node_id] == "running":
                self._cluster.ask_node(node_id, {"op": "heal", "peer": peer})
            if states[node_id] != "paused":  # a cut lives in the process, and ends with it
                self._to_mend.discard((node_id, peer))

    def _wait_until_whole(self) -> None:
        """Return when all nodes run and every replica is in sync, or when it is over."""
        deadline: float | None = None
        while not self._is_over.is_set():
            if not self.is_running():  # the test has stopped one itself: that is its own affair
                deadline = None
            else:
                deadline = deadline or time.monotonic() + WHOLE_TIMEOUT_S
                if self._to_mend:
                    with self._alone:
                        self._mend()
                short = missing_replicas(self._cluster)
                if not short:
                    return
                if time.monotonic() > deadline:
                    raise Failure(
                        f"{WHOLE_TIMEOUT_S:.0f} s after the last fault was undone, not all "
                        f"replicas are in sync: {', '.join(short[:3])}."
                    )
            self._is_over.wait(POLL_S)

    def is_running(self) -> bool:
        return all(status.state == "running" for status in self._cluster.status())


def missing_replicas(cluster: Cluster) -> list[str]:
    """The partitions that want a leader or a replica in sync, in words."""
    found = cluster.ask(lambda admin: admin.describe_topics(None))
    return [
        f"{p.topic}/{p.partition} has {list(p.isr)} of {list(p.replicas)}"
        for p in found
        if p.leader < 0 or len(p.isr) < len(p.replicas)
    ]
