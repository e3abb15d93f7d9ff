"""Faults in a cluster while a test runs, one after another, drawn from a seed.

Only one node has a fault at a time, and the next fault waits until every replica is in sync again.
Therefore the cluster can always continue, and acknowledged records must be there afterwards. A
fault counts when it is proved. A kill is proved if the pid is gone and the port refuses, a pause if
the process is in state T, and a link if the node has confirmed the fault. The test fails if a fault
cannot be proved, or if a replica does not get in sync again. The same seed and test draw the same
faults, but their times depend on processes.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from ...deploy.cluster.failure import Failure
from ...deploy.cluster.local_cluster import Cluster
from ...deploy.faults.engine import Action, FaultContext, Scheduler
from ...deploy.faults.schedule import Fault

WHOLE_TIMEOUT_S = 40.0
POLL_S = 0.05
ABANDON_TIMEOUT_S = 3.0
FIRST_DELAY_S, DELAY_S = (0.05, 0.3), (0.1, 0.8)  # since the cluster was whole
SLOW_BY_MS = (5, 60)
LASTS_S: dict[str, tuple[float, float]] = {
    "kill": (0.1, 1.2),
    "stop": (0.1, 1.2),
    "pause": (0.3, 2.5),  # from well below to well above the session timeout of 1.5 s
    "partition": (0.3, 2.5),
    "one-way": (0.3, 2.5),
    "slow": (0.5, 2.0),
}


def read_kinds(text: str) -> tuple[str, ...]:
    """Return the kinds of faults in a marker's text, or raise Failure for an unknown kind."""
    kinds = tuple(part.strip() for part in text.split(",") if part.strip())
    for kind in kinds:
        if kind not in LASTS_S:
            raise Failure(f"{kind!r} is no fault; there are {', '.join(LASTS_S)}.")
    return kinds


class ScheduledFaults(FaultContext[Cluster]):
    """A thread that injects faults one by one until `stop`.

    `ended` counts the faults that are over.
    """

    def __init__(
        self,
        cluster: Cluster,
        schedule: Iterator[Fault],
        *,
        note: Callable[[str], None],
        lock: AbstractContextManager[object],
    ) -> None:
        """Prepare the thread.

        `lock` is held during each change to a node, since the test changes nodes, too.
        """
        super().__init__(cluster)
        self._note, self._lock = note, lock
        self.thread = Scheduler(self, "oncelog-faults", schedule, ACTIONS, self._wait_for_turn)
        self._undoes, self._is_over = True, False
        self._to_mend: set[tuple[int, int]] = set()  # node, its peer

    def stop(self, *, undo: bool = True) -> None:
        """Inject no more faults, and `undo` active faults, however long that takes.

        Without `undo` the method does not wait for silent nodes, as all nodes are about to be
        killed.
        """
        self._undoes = undo
        self.stopping.set()
        self.thread.join(None if undo else ABANDON_TIMEOUT_S)
        self._is_over = True

    def wait(self, count: int, timeout_s: float) -> None:
        """Wait until `count` faults were injected and are over, or raise Failure at the timeout."""
        end_s = time.monotonic() + timeout_s
        while self.ended < count and self.problem is None and not self._is_over:
            if (left_s := end_s - time.monotonic()) <= 0:
                break
            time.sleep(min(POLL_S, left_s))
        if self.problem is not None:
            raise self.problem
        if self.ended < count and self._is_over:
            raise Failure(
                f"Only {self.ended} of {count} faults were injected before the test ended. Wait "
                f"for them in the test itself."
            )
        if self.ended < count:
            raise Failure(f"Only {self.ended} of {count} faults struck in {timeout_s:.0f} s.")

    def _wait_for_turn(self, fault: Fault) -> None:
        self.wait_until_whole()
        self.sleep(fault.between(1, *(DELAY_S if self.tried else FIRST_DELAY_S)))

    def make_and_undo(self, fault: Fault) -> None:
        while not self._make(fault):
            self.wait_until_whole()
            if self.stopping.is_set():
                return
        self.sleep(fault.between(2, *LASTS_S[fault.kind]))
        with self._lock:
            if self._undoes:  # else it would start a node while others end the nodes
                self.undo(fault)

    def _make(self, fault: Fault) -> bool:
        """Inject the fault and return True, or return False if a node does not run.

        The test may have stopped a node after all replicas were in sync.
        """
        node_id = _node_of(self.cluster, fault)
        with self._lock:
            if not self.is_running():
                return False
            match fault.kind:
                case "kill":
                    self.cluster.kill(node_id)
                    done = f"killed node {node_id}: pid gone, port refuses"
                case "stop":
                    self.cluster.stop(node_id)
                    done = f"stopped node {node_id}"
                case "pause":
                    self.cluster.pause(node_id)
                    done = f"paused node {node_id}: state T"
                case "slow":
                    delay_ms = int(fault.between(3, *SLOW_BY_MS))
                    self.cluster.slow(node_id, delay_ms)
                    done = f"slowed node {node_id} by {delay_ms} ms"
                case kind:
                    is_one_way = kind == "one-way"
                    others = [i for i in self.cluster.node_ids if i != node_id]
                    self.cluster.partition([node_id], others, one_way=is_one_way)
                    done = f"cut node {node_id} off"
                    done += ": it receives messages, and sends none" if is_one_way else ""
            self.hit(fault, done)
            self._note(done)
            return True

    def undo(self, fault: Fault) -> None:
        """Undo only this fault, since the test may have injected other faults."""
        node_id = _node_of(self.cluster, fault)
        state = self.cluster.node(node_id).status().state
        if fault.kind in ("kill", "stop"):
            if state == "down":
                self.cluster.start(node_id)
                self._note(f"started node {node_id}: it serves")
        elif fault.kind == "pause":
            if state == "paused":
                self.cluster.resume(node_id)
                self._note(f"resumed node {node_id}")
        else:
            others = [i for i in self.cluster.node_ids if i != node_id]
            self._to_mend |= {(node_id, peer) for peer in others}
            if fault.kind == "partition":
                self._to_mend |= {(peer, node_id) for peer in others}
            self._mend()
            self._note(f"mended the links of node {node_id}")

    def _mend(self) -> None:
        """Restore the links that this thread has cut, on nodes that run.

        The links of a paused node are restored after it was resumed. A stopped node has no cut
        links.
        """
        states = {status.node_id: status.state for status in self.cluster.status()}
        for node_id, peer in sorted(self._to_mend):
            if states[node_id] == "running":
                self.cluster.ask_node(node_id, {"op": "heal", "peer": peer})
            if states[node_id] != "paused":  # a cut lives in the process, and ends with it
                self._to_mend.discard((node_id, peer))

    def wait_until_whole(self) -> None:
        """Return when all nodes run and every replica is in sync, or when the test is over."""
        deadline: float | None = None
        while not self.stopping.is_set():
            if not self.is_running():  # the test has stopped one itself and is responsible for it
                deadline = None
            else:
                deadline = deadline or time.monotonic() + WHOLE_TIMEOUT_S
                if self._to_mend:
                    with self._lock:
                        self._mend()
                short = self.cluster.missing_replicas()
                if not short:
                    return
                if time.monotonic() > deadline:
                    raise Failure(
                        f"{WHOLE_TIMEOUT_S:.0f} s after the last fault was undone, not all "
                        f"replicas are in sync: {', '.join(short[:3])}."
                    )
            self.stopping.wait(POLL_S)

    def is_running(self) -> bool:
        return all(status.state == "running" for status in self.cluster.status())


def _node_of(cluster: Cluster, fault: Fault) -> int:
    return fault.pick(0, cluster.node_ids)


ACTIONS: dict[str, Action] = dict.fromkeys(LASTS_S, ScheduledFaults.make_and_undo)
