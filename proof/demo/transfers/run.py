"""`oncelog demo --job transfers` writes rows and events in transactions, under faults.

The cluster has three nodes and a topic of 3 partitions, RF 3, min.insync 2. Two services make
transfers between accounts of a database, each with an event. A check-back ends abandoned
transactions. Faults are drawn from a printed seed. Then rows and events are read and compared.
`--break` removes one part and changes nothing else.
"""

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ....deploy.cluster.failure import Failure
from ....deploy.cluster.local_cluster import Cluster
from ....deploy.cluster.private import opener
from ....deploy.faults.postgres_server import PostgresServer, postgres_server, why_there_is_none
from ....deploy.faults.schedule import schedule
from ...judge.analysis.findings import Finding
from ...judge.contents import judge_end
from .. import reading
from ..verdict import exit_code
from .database import SQLITE, TransferDatabase, database_at
from .faults import TransferFaultReport, TransferFaults, kinds_of
from .judge import ReaderWait, TransfersVerdict, judge_transfers
from .processes import (
    OLDER_THAN_MS,
    RIVAL,
    SERVICES,
    CheckBackProcess,
    ServiceOverruled,
    TransferServices,
)
from .readers import ReaderWatch
from .service import ServiceSettings

TOPIC, PARTITIONS, REPLICAS = "transfers", 3, 3
SECONDS = 60.0
OWN_POSTGRESQL = ("postgresql://", "postgres://")
START_TIMEOUT_S, SETTLE_TIMEOUT_S = 90.0, 40.0
WAIT_MAX_S = OLDER_THAN_MS / 1000 + 2.0  # of readers
BETWEEN_S = 1.0  # of work, before each fault


@dataclass(slots=True)
class TransfersReport:
    seed: int
    broken: str
    database: str
    faults: list[TransferFaultReport] = field(default_factory=list[TransferFaultReport])
    when: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    verdict: TransfersVerdict = field(default_factory=TransfersVerdict)
    at_the_end: tuple[Finding, ...] = ()
    told: Counter[str] = field(default_factory=Counter[str])
    restarts: int = 0
    seconds: float = 0.0

    @property
    def is_proof(self) -> bool:
        """Return whether faults hit open transactions."""
        return any(fault.open_transactions for fault in self.faults)

    @property
    def findings(self) -> list[Finding]:
        return [*self.verdict.violations, *self.at_the_end]

    @property
    def exit_code(self) -> int:
        return exit_code(self)


def refuse_database(url: str | None) -> None:
    """Raise Failure if the database is not available, before a cluster is started."""
    if url in OWN_POSTGRESQL:
        if why := why_there_is_none():
            raise Failure(why, exit_code=2)
    elif url is not None:
        database_at(url)


@contextlib.contextmanager
def database_of(
    url: str | None, cluster: Cluster
) -> Iterator[tuple[TransferDatabase, PostgresServer | None]]:
    """Open the database of a run.

    It is sqlite in the cluster's directory by default, else a new PostgreSQL server, or a given
    one.
    """
    if url in OWN_POSTGRESQL:
        with postgres_server() as server:
            yield TransferDatabase(server.url), server
    elif url is None:
        file = cluster.data.resolve() / "transfers.db"
        os.close(opener(str(file), os.O_CREAT | os.O_WRONLY))  # else sqlite opens it to all
        yield TransferDatabase(f"{SQLITE}{file}"), None
    else:
        yield database_at(url), None


class TransfersDemo:
    """One run on a started cluster of three nodes."""

    def __init__(
        self,
        cluster: Cluster,
        seed: int,
        broken: str,
        say: Callable[[str], None],
        *,
        doing: Callable[[str], None] = lambda words: None,
        database: TransferDatabase,
        server: PostgresServer | None = None,
    ) -> None:
        """Prepare a run. `doing` is called with a sentence whenever the run begins to wait."""
        self.cluster, self.say, self._doing = cluster, say, doing
        self.database, self._server = database, server
        name = "sqlite" if database.is_sqlite else "PostgreSQL"
        self.report = TransfersReport(seed, broken, name)
        self._started_s = 0.0
        self.settings = ServiceSettings(
            connection=cluster.connection,
            topic=TOPIC,
            database=database.url,
            folder=str(cluster.data),
            seed=seed,
            broken=broken,
        )
        self.services = TransferServices(self.settings, cluster.data)
        self.check_back = CheckBackProcess(self.settings, cluster.data)

    def run(
        self, seconds: float = SECONDS, *, kinds: tuple[str, ...] | None = None
    ) -> TransfersReport:
        """Let the services write transfers under faults. Then read all data, and judge it.

        With `kinds` each of these kinds of faults is injected once, and no other. The run is
        extended until each kind of fault has occurred. It ends early when a service does not
        continue, because Kafka has aborted what the database has committed.
        """
        self._started_s = started = time.monotonic()
        self._create()
        watch = ReaderWatch(self.cluster.client_config(), TOPIC, PARTITIONS, WAIT_MAX_S / 4)
        faults = TransferFaults(
            self.cluster, TOPIC, self.services, self.check_back, self.database, self._server
        )
        try:
            self._doing("the services start")
            self.check_back.start_and_wait()
            for name in SERVICES:
                self.services.start(name)
            try:
                if not self.services.wait(self._is_at_work, START_TIMEOUT_S):
                    raise Failure(f"The services made no transfer. Logs: {self.cluster.data}.")
                watch.start()
                self._strike(faults, started + seconds, kinds)
            except ServiceOverruled as reason:  # the loss is there: judge it
                self.say(str(reason))
            self._doing("the faults have ended, and the demo waits until no transaction is open")
            self._end_services()
            self.report.at_the_end = self._judge_end()
            waits = watch.end()
        finally:
            self.services.close()
            self.check_back.close()
        self._doing("all rows and events are read back and judged")
        self._judge(waits, faults.away)
        if not self.report.findings:
            self.services.check()  # a service was overruled, and the judge finds no loss
        self._remove_files()
        self.report.restarts = self.services.restarts
        self.report.seconds = time.monotonic() - started
        return self.report

    # --- the parts

    def _create(self) -> None:
        self.cluster.ask(
            lambda admin: admin.create_topic(
                TOPIC,
                partitions=PARTITIONS,
                replication_factor=REPLICAS,
                configs={"min.insync.replicas": "2"},
            )
        )
        self.cluster.wait_for_isr(TOPIC, REPLICAS)
        self.database.create()

    def _is_at_work(self) -> bool:
        return len(self.services.reported) == len(SERVICES) and self.services.all_committed_after(
            0.0
        )

    def _strike(self, faults: TransferFaults, until: float, kinds: tuple[str, ...] | None) -> None:
        possible = kinds_of(self.database)
        wanted = possible if kinds is None else tuple(k for k in possible if k in kinds)
        for number, fault in enumerate(schedule(f"transfers {self.report.seed}", wanted)):
            if number >= len(wanted) and (kinds is not None or time.monotonic() > until):
                return
            time.sleep(BETWEEN_S)
            self._doing(f"fault {number + 1}: {fault.kind}")
            begun_s = time.monotonic() - self._started_s
            report = faults.inflict(fault)
            self.report.faults.append(report)
            self.report.when.append((begun_s, time.monotonic() - self._started_s))
            self.say(describe(report))

    def _end_services(self) -> None:
        for name in (*SERVICES, RIVAL):  # else a trap may pause a service after it was asked to end
            self.services.settings_of(name).trap.unlink(missing_ok=True)
        for name, code in self.services.stop().items():
            if code is None:
                raise Failure(f"{name} does not end. Its log: {self.services.log(name)}")

    # --- the judgement

    def _judge_end(self) -> tuple[Finding, ...]:
        """Check that all transactions have ended, and return the findings.

        The check is repeated for a while, because the check-back has to end abandoned transactions.
        """
        found: tuple[Finding, ...] = ()

        def is_settled() -> bool:
            nonlocal found
            opened = reading.open_transactions(self.cluster)
            found = judge_end(reading.ends_of(self.cluster, [TOPIC]), opened, {}, {})
            return not found

        reading.wait_for(is_settled, SETTLE_TIMEOUT_S)
        return found

    def _judge(self, waits: list[ReaderWait], away: list[tuple[float, float]]) -> None:
        read = reading.read_back(self.cluster.client_config(), TOPIC, PARTITIONS)
        events = [(p, offset, value) for p, offset, _, value in read]
        self.report.told = Counter(self.services.told.values())
        self.report.verdict = judge_transfers(
            self.database.read(),
            events,
            self.services.told,
            waits,
            away,
            wait_max_s=WAIT_MAX_S,
        )

    def _remove_files(self) -> None:
        """Remove the run's files, so that the cluster's directory is empty at the end."""
        self.services.remove_logs()
        self.check_back.remove_logs()
        self.database.remove()
        if self.database.is_sqlite:
            for suffix in ("", "-wal", "-shm"):
                file = self.database.file
                file.with_name(file.name + suffix).unlink(missing_ok=True)


def describe(report: TransferFaultReport) -> str:
    went_on = f"both services committed again after {report.resumed_ms:.0f} ms"
    return f"{report.what}; hit {report.open_transactions} open transactions; {went_on}"
