"""Where faults are made: the cluster, the clients, the dice's outcome, and the book of faults.

A fault counts when it is proved: `hit` is called when its effect was seen (the pid is gone, the
messages were lost, the configuration is read back). What was tried and not seen is `missed`, with
the reason, and counts for nothing.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from ...wire.errors import KafkaError
from ..cluster.failure import Failure
from ..faults.client_proxies import ClientProxies
from ..faults.faulty_cluster import FaultyCluster
from ..faults.schedule import Planned
from ..judge.history.recorder import Recorder
from ..judge.history.rows import Handle
from .load.order import WorkerOrder
from .load.settings import LoadSettings
from .workers import Workers

POLL_S = 0.05
MISSES_KEPT = 200


class NotHit(Failure):
    """The fault was made, and its effect was not seen."""


class Stage:
    """Shared by the lanes; every method may be called from any of their threads."""

    def __init__(
        self,
        cluster: FaultyCluster,
        workers: Workers,
        proxies: ClientProxies,
        recorder: Recorder,
        settings: LoadSettings,
        *,
        seed: int,
        transactional_ids: list[str],
        extra_order: WorkerOrder,
    ) -> None:
        self.cluster, self.workers, self.proxies = cluster, workers, proxies
        self.settings, self.extra_order = settings, extra_order
        self.transactional_ids = transactional_ids
        self.stopping = threading.Event()
        self.hits: Counter[str] = Counter()
        self.misses: list[str] = []
        self.broken: list[str] = []
        self.problem: BaseException | None = None
        self._recorder, self._seed = recorder, seed
        self._lock = threading.Lock()
        self._links = threading.Lock()  # held while links are broken, or must not be

    @property
    def session_s(self) -> float:
        """After so much silence a node is dead to the others."""
        return int(self.cluster.file.settings.get("broker.session.timeout.ms", "9000")) / 1000

    def sleep(self, seconds: float) -> None:
        """Let a fault last; shorter when the run ends."""
        self.stopping.wait(seconds)

    def until(self, is_seen: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait until an effect is seen; NotHit when it is not in time."""
        deadline = time.monotonic() + timeout_s
        while not is_seen():
            if self.stopping.is_set():
                raise NotHit(f"the run was over before {what} was seen")
            if time.monotonic() > deadline:
                raise NotHit(f"{what} was not seen in {timeout_s:.1f} s")
            time.sleep(POLL_S)

    def insist(self, work: Callable[[], object], timeout_s: float) -> None:
        """Do something again while the cluster answers that this may help."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                work()
                return
            except KafkaError as problem:
                if not problem.retriable or time.monotonic() > deadline:
                    raise
            time.sleep(POLL_S)

    def running(self) -> list[int]:
        """Nodes that run now and are not paused."""
        return [s.node_id for s in self.cluster.status() if s.state == "running"]

    @contextmanager
    def links_whole(self) -> Iterator[None]:
        """Within it nobody breaks a link."""
        with self._links:
            yield

    def make(self, planned: Planned, actions: Mapping[str, "Action"]) -> None:
        """Make one fault; what it meets beside is a miss, and what nobody expects ends the run."""
        fault = Fault(self, planned.kind)
        try:
            actions[planned.kind](self, planned, fault)
        except (Failure, KafkaError, OSError) as why:
            self.miss(planned.kind, str(why), was_hit=fault.is_hit)
        except BaseException as problem:
            self.problem = problem
            self.stopping.set()
            raise
        finally:
            fault.end()

    def miss(self, kind: str, why: str, *, was_hit: bool = False) -> None:
        """Write down what did not go as it should."""
        with self._lock:
            if len(self.misses) < MISSES_KEPT:
                self.misses.append(f"{kind}{' (it was made)' if was_hit else ''}: {why}")

    def begun(self, kind: str, target: str, started_ns: int) -> Handle:
        """The row of a fault that is proved."""
        with self._lock:
            self.hits[kind] += 1
            return self._recorder.add("faults", kind, target, started_ns, -1, self._seed)

    def ended(self, row: Handle) -> None:
        self._recorder.fault_ended(row)

    def now_ns(self) -> int:
        return self._recorder.now_ns()


class Fault:
    """One fault on its way: made at `started`, proved by `hit`, over at `end`."""

    def __init__(self, stage: Stage, kind: str) -> None:
        self._stage, self.kind = stage, kind
        self._started_ns = stage.now_ns()
        self._row: Handle | None = None

    @property
    def is_hit(self) -> bool:
        """Whether its effect was seen."""
        return self._row is not None

    def hit(self, target: str) -> None:
        if self._row is None:
            self._row = self._stage.begun(self.kind, target, self._started_ns)

    def end(self) -> None:
        """It is healed; may be called again."""
        if self._row is not None:
            self._stage.ended(self._row)


Action = Callable[[Stage, Planned, Fault], None]
