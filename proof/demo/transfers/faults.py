"""The faults of `--job transfers`, each aimed at open transactions.

kill         kill -9 of a partition's leader while a transaction is prepared
coordinator  kill -9 of the node that coordinates a service's transactions, while one is prepared
all-nodes    kill -9 of all three nodes at the same time
prepared     a service dies when its records are prepared and nothing is decided, and is
             restarted
decided      a service dies when its database has committed and Kafka has not
sleeper      a service is paused before its commit, until the check-back has aborted the
             transaction, and is then resumed (tests that the check-back's row `aborted` in the
             table of decisions stops the service)
takeover     another process of the same name claims the name and is paused; the first process
             is paused before its commit; the other is resumed, and then the first (tests the
             generation, by which a newer process stops an older one)
late-start   another process of the same name is paused before its first request to Kafka;
             when it is resumed, the restarted first process has decided (tests that each
             session has its own transactional id)
check-back   a service dies prepared, the check-back is killed and restarted, and the service
             is restarted when the check-back has ended the transaction
database     kill -9 of the database's server while a transaction is prepared (on a server
             that is not the demo's own, its sessions are ended; not with sqlite)
"""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ....deploy.cluster.failure import Failure
from ....deploy.cluster.local_cluster import Cluster
from ....deploy.faults.engine import FaultContext
from ....deploy.faults.postgres_server import PostgresServer
from ....deploy.faults.schedule import Fault
from .. import reading
from ..engine import last_ms
from .broken import CLAIMED, DECIDED, INITIALIZING, PREPARED
from .database import TransferDatabase
from .processes import OLDER_THAN_MS, RIVAL, SERVICES, CheckBackProcess, TransferServices

OF_BROKERS = ("kill", "coordinator", "all-nodes")
OF_SERVICES = ("prepared", "decided", "sleeper", "takeover", "late-start", "check-back")
DATABASE = "database"
OUTAGE_S = (0.2, 0.8)
RESUME_TIMEOUT_S = 120.0
ENDED_TIMEOUT_S = 30.0
CHECKED_BACK_S = OLDER_THAN_MS / 1000 + 1.5  # then a check-back has ended the prepared transactions
FENCED_TIMEOUT_S = 6.0


def kinds_of(database: TransferDatabase) -> tuple[str, ...]:
    return (*OF_BROKERS, *OF_SERVICES, *(() if database.is_sqlite else (DATABASE,)))


class TransferFaultReport(NamedTuple):
    """The effect of a fault, the number of open transactions, and the time to the next commits."""

    kind: str
    what: str
    open_transactions: int
    resumed_ms: float


class TransferFaults(FaultContext[Cluster]):
    """The faults of a run, injected one at a time.

    away: times in which a node, the database or the check-back was not running.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        services: TransferServices,
        check_back: CheckBackProcess,
        database: TransferDatabase,
        server: PostgresServer | None,
    ) -> None:
        super().__init__(cluster)
        self.topic, self.services, self.check_back = topic, services, check_back
        self.database, self._server = database, server
        self.away: list[tuple[float, float]] = []
        self._hit = 0

    def inflict(self, fault: Fault) -> TransferFaultReport:
        """Inject a fault. Wait until replicas are in sync and both services commit again."""
        actions: Mapping[str, Callable[[Fault, str], str]] = {
            "kill": self._kill,
            "coordinator": self._coordinator,
            "all-nodes": self._all_nodes,
            "prepared": self._dies_prepared,
            "decided": self._dies_decided,
            "sleeper": self._sleeper,
            "takeover": self._takeover,
            "late-start": self._late_start,
            "check-back": self._check_back,
            DATABASE: self._database,
        }
        self._hit = 0
        what = actions[fault.kind](fault, fault.pick(0, SERVICES))
        self.hit(fault, what)
        since = time.monotonic()
        resumed_ms = self.await_commits(since)
        self.check()
        return TransferFaultReport(fault.kind, what, self._hit, resumed_ms)

    def await_commits(self, since: float) -> float:
        """Wait until both services have committed after `since`. Return how many ms that took."""

        def has_resumed() -> bool:
            return self.services.all_committed_after(since)

        if not self.services.wait(has_resumed, RESUME_TIMEOUT_S):
            raise Failure(
                f"Not both services committed anything for {RESUME_TIMEOUT_S:.0f} s after a "
                f"fault. Their logs: {self.services.log(SERVICES[0]).parent}."
            )
        return last_ms([self.services.reported[name].committed_at for name in SERVICES], since)

    def check(self) -> None:
        """Raise the error that stopped a service or the check-back, if one has stopped."""
        self.services.check()
        self.check_back.check()

    @contextlib.contextmanager
    def absence(self) -> Iterator[None]:
        """Add the duration of the block to `away`, because readers wait for a missing component."""
        since = time.monotonic()
        try:
            yield
        finally:
            self.away.append((since, time.monotonic()))

    # --- of nodes

    def _kill(self, fault: Fault, name: str) -> str:
        node = self.cluster.leader(self.topic, fault.pick(1, range(3)))
        self._kill_nodes(fault, name, [node])
        return f"killed node {node}, a leader, while {name} was at its commit"

    def _coordinator(self, fault: Fault, name: str) -> str:
        node = self.cluster.coordinator("txn", self.services.reported[name].session)
        self._kill_nodes(fault, name, [node])
        return f"killed node {node}, coordinator of {name}, while it was at its commit"

    def _all_nodes(self, fault: Fault, name: str) -> str:
        self._kill_nodes(fault, name, self.cluster.node_ids)
        return f"killed all nodes while {name} was at its commit"

    def _kill_nodes(self, fault: Fault, name: str, nodes: list[int]) -> None:
        self.services.await_moment(name)
        self._hit = self.services.open_transactions()
        with self.absence():
            for node in nodes:
                self.cluster.kill(node)
            time.sleep(fault.between(2, *OUTAGE_S))
            self.cluster.start_all(nodes)
            self.cluster.wait_for_isr(self.topic, len(self.cluster.node_ids), timeout_s=60)

    # --- of services

    def _dies_prepared(self, fault: Fault, name: str) -> str:
        return self._dies(fault, name, PREPARED)

    def _dies_decided(self, fault: Fault, name: str) -> str:
        return self._dies(fault, name, DECIDED)

    def _dies(self, fault: Fault, name: str, moment: str) -> str:
        self.services.kill_at(name, moment)
        self._hit = 1
        time.sleep(fault.between(2, *OUTAGE_S))
        self.services.start(name)
        return f"killed {name} when a transaction was {moment}"

    def _sleeper(self, fault: Fault, name: str) -> str:
        session = self._stopped(name, PREPARED)
        with self._sqlite_held():
            is_ended = reading.wait_for(lambda: not self._is_open(session), CHECKED_BACK_S)
            self.services.resume(name)
        end = "until the check-back had ended that" if is_ended else "for a while"
        return f"{name} stood still before its commit {end}, and woke"

    def _takeover(self, fault: Fault, name: str) -> str:
        name = SERVICES[0]
        with self._sqlite_held():
            self._rival_stopped(CLAIMED)
            session = self._stopped(name, PREPARED)
            self.services.resume(RIVAL)
            reading.wait_for(lambda: not self._is_open(session), FENCED_TIMEOUT_S)
            self.services.resume(name)
        self.services.kill(RIVAL)
        return f"another {name} took over while the first stood still before its commit"

    def _late_start(self, fault: Fault, name: str) -> str:
        name = SERVICES[0]
        with self._sqlite_held():
            self._rival_stopped(INITIALIZING)
            self._stopped(name, DECIDED)
            self.services.resume(RIVAL)
            self._await_rival()
            self.services.resume(name)
        self.services.kill(RIVAL)
        return f"another {name} slept before its first request, and woke when a commit was decided"

    def _stopped(self, name: str, moment: str) -> str:
        """Pause the service at this step, and return the transactional id of its session."""
        self.services.stop_at(name, moment)
        self._hit += 1
        return self.services.reported[name].session

    def _rival_stopped(self, moment: str) -> None:
        self.services.set_trap(RIVAL, moment, signal.SIGSTOP)
        self.services.start(RIVAL)
        self.services.await_caught(RIVAL, is_stopped=True)

    def _await_rival(self) -> None:
        """Wait until the second process of the same name has called InitProducerId."""
        rival = self.services.reported[RIVAL]
        self.services.wait(lambda: rival.event not in ("", "caught", INITIALIZING), ENDED_TIMEOUT_S)

    @contextlib.contextmanager
    def _sqlite_held(self) -> Iterator[None]:
        """Add the duration of the block to `away` if a paused service locks sqlite's only lock."""
        with self.absence() if self.database.is_sqlite else contextlib.nullcontext():
            yield

    def _is_open(self, session: str) -> bool:
        return session in reading.open_transactions(self.cluster)

    # --- of the check-back, of the database

    def _check_back(self, fault: Fault, name: str) -> str:
        session = self.services.reported[name].session
        self.services.kill_at(name, PREPARED)
        self._hit = 1
        session = self.services.reported[name].session or session
        time.sleep(fault.between(1, 0.1, OLDER_THAN_MS / 1000))
        with self.absence():
            self.check_back.kill(CheckBackProcess.name)
            time.sleep(fault.between(2, *OUTAGE_S))
            self.check_back.start_and_wait()
        if not reading.wait_for(lambda: not self._is_open(session), ENDED_TIMEOUT_S):
            raise Failure(f"The check-back did not end {session} in {ENDED_TIMEOUT_S:.0f} s.")
        self.services.start(name)
        return f"killed {name} prepared, then the check-back, which came back and ended it"

    def _database(self, fault: Fault, name: str) -> str:
        self.services.await_moment(name)
        self._hit = self.services.open_transactions()
        with self.absence():
            if self._server is None:
                count = self.database.cut_off()
                return f"ended {count} sessions of the database while {name} was at its commit"
            self._server.kill()
            time.sleep(fault.between(2, *OUTAGE_S))
            self._server.start()
        return f"killed the database's server while {name} was at its commit"
