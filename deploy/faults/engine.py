"""Schedulers, which inject faults one by one, and their shared context with the results.

An action calls `hit` when it has seen its fault's effect. For example, the pid is gone, messages
were lost, or the configuration is read back. A fault without a seen effect is a miss, which is
reported with the reason and does not count.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from ..cluster.ends.flag import Flag
from ..cluster.failure import Failure
from ..cluster.local_cluster import Cluster
from .schedule import Fault

POLL_S = 0.05
MISSES_KEPT = 200
ClusterT = TypeVar("ClusterT", bound=Cluster)
ContextT = TypeVar("ContextT", bound="FaultContext")


class EffectNotSeen(Failure):
    """The error of an injected fault whose effect was not seen."""


class FaultContext(Generic[ClusterT]):
    """The shared state of schedulers. Any of their threads may call its methods.

    tolerated: errors that make a fault a miss. Every other error is the `problem`, which ends all
    schedules. ended: the number of faults that had a seen effect and are over.
    """

    tolerated: tuple[type[Exception], ...] = ()

    def __init__(self, cluster: ClusterT) -> None:
        self.cluster = cluster
        self.stopping = Flag()
        self.tried = self.ended = 0
        self.hits: Counter[str] = Counter()
        self.misses: list[str] = []
        self.problem: BaseException | None = None
        # A Condition would stay locked if a signal handler raised in it.
        self.lock = threading.RLock()
        self.links_in_use = threading.Lock()  # held while links are broken, or must not be

    @property
    def session_s(self) -> float:
        """Return the broker session timeout, after which a silent node is fenced, in seconds."""
        return int(self.cluster.file.settings.get("broker.session.timeout.ms", "9000")) / 1000

    def sleep(self, seconds: float) -> None:
        """Wait for some seconds, but only until all schedules are stopped."""
        self.stopping.wait(seconds)

    def until(
        self, is_seen: Callable[[], bool], timeout_s: float, what: str, *, mends: bool = False
    ) -> None:
        """Wait until `is_seen` returns True.

        Raises EffectNotSeen at the timeout, or when the run ends. what: the name of the effect for
        the error. mends: the effect is the end of a fault, so the wait continues after the end of
        the run.
        """
        deadline = time.monotonic() + timeout_s
        while not is_seen():
            if self.stopping.is_set() and not mends:
                raise EffectNotSeen(f"the run was over before {what} was seen")
            if time.monotonic() > deadline:
                raise EffectNotSeen(f"{what} was not seen in {timeout_s:.1f} s")
            time.sleep(POLL_S)

    def hit(self, fault: Fault, target: str, lasts_s: float = 0.0) -> None:
        """Count a fault whose effect was seen, and wait for `lasts_s` seconds.

        Further calls for the same fault only wait.
        """
        with self.lock:
            if not fault.target:
                fault.target = target
                self.hits[fault.kind] += 1
        self.sleep(lasts_s)

    def miss(self, kind: str, why: str) -> None:
        """Record a fault that failed or had no seen effect."""
        with self.lock:
            if len(self.misses) < MISSES_KEPT:
                self.misses.append(f"{kind}: {why}")

    def make(self, fault: Fault, actions: Mapping[str, "Action"]) -> None:
        """Inject one fault by the action for its kind, and end the fault.

        A tolerated error is recorded as a miss.
        """
        try:
            actions[fault.kind](self, fault)
        except self.tolerated as why:
            self.miss(f"{fault.kind}{' (it was made)' if fault.target else ''}", str(why))
        with self.lock:
            self.ended += bool(fault.target)

    def fail(self, problem: BaseException) -> None:
        """End all schedules because of an unexpected error, which the run raises."""
        with self.lock:
            self.problem = problem
            self.stopping.set()


Action = Callable[[ContextT, Fault], None]


class Scheduler(threading.Thread):
    """A thread that injects the faults of one schedule, each after `wait_for_turn` has returned."""

    def __init__(
        self,
        context: FaultContext,
        name: str,
        faults: Iterator[Fault],
        actions: Mapping[str, Action],
        wait_for_turn: Callable[[Fault], None],
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._context, self._faults, self._actions = context, faults, actions
        self._wait_for_turn = wait_for_turn

    def run(self) -> None:
        try:
            for fault in self._faults:
                self._wait_for_turn(fault)
                if self._context.stopping.is_set():
                    return
                with self._context.lock:
                    self._context.tried += 1
                self._context.make(fault, self._actions)
        except BaseException as problem:  # raised by the conductor of the run
            self._context.fail(problem)
