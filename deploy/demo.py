"""`oncelog demo`: the flights go through a cluster whose nodes are killed, and two judges look.

Three nodes, topics of 6 partitions, RF 3, min.insync 2. A producer that anybody could have written
hands over the flights. Two workers of one group read them, and write enriched flights and running
sums of delays, inputs and outputs in one transaction. The faults are drawn from a printed seed.
Then everything is read back and judged. `--break` takes one guarantee away and changes nothing
else.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import demo_reading, fault_plan, flights
from .demo_faults import FaultReport, Faults
from .demo_stream import Stream
from .demo_worker import WorkerSettings
from .demo_workers import Workers
from .failure import Failure
from .judge import Finding, Verdict, compare_sums, judge
from .judge_outputs import OutputVerdict, judge_end, judge_outputs
from .local_cluster import Cluster

TOPIC, ENRICHED, SUMS, OFFSETS = "flights", "enriched-flights", "delays", "__consumer_offsets"
GROUP, WORKERS = "enrichment", ("worker-1", "worker-2")
PARTITIONS, REPLICAS = 6, 3
START_TIMEOUT_S, DRAIN_TIMEOUT_S, SETTLE_TIMEOUT_S = 25.0, 60.0, 20.0
EXTRA_KILLS_MAX = 5
SESSION_MS, TRANSACTION_TIMEOUT_MS = 2_500, 20_000
CLUSTER_CONFIG = {"group.min.session.timeout.ms": "1000"}  # a dead worker is missed soon
RESERVE_ROWS = 60_000  # kept for the time after the faults, and for kills that have to be repeated
IDEMPOTENT: dict[str, Any] = {"acks": "all", "enable.idempotence": True}
SAFE_TOPIC = {"min.insync.replicas": "2"}
UNCLEAN_TOPIC = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
FENCE_OFF = "fence=off"
# What each --break changes: the producer's settings, the settings of the topic of flights.
BREAKS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "none": (IDEMPOTENT, SAFE_TOPIC),
    "acks=1": ({"acks": "1", "enable.idempotence": False}, SAFE_TOPIC),
    "acks=0": ({"acks": "0", "enable.idempotence": False}, SAFE_TOPIC),
    "idempotence=off": ({"acks": "all", "enable.idempotence": False}, SAFE_TOPIC),
    "unclean": (IDEMPOTENT, UNCLEAN_TOPIC),
    FENCE_OFF: (IDEMPOTENT, SAFE_TOPIC),  # and the workers' offsets go without their generation
}


@dataclass(slots=True)
class DemoReport:
    """Everything that the demo found out."""

    seed: int
    broken: str
    faults: list[FaultReport] = field(default_factory=list[FaultReport])
    inputs: Verdict | None = None
    outputs: OutputVerdict | None = None
    at_the_end: list[Finding] = field(default_factory=list[Finding])
    wrong_sums: Finding | None = None
    groups: int = 0
    transactions: dict[str, int] = field(default_factory=dict[str, int])  # state -> how many
    withheld: int = 0  # records of transactions that were not committed
    worker_restarts: int = 0
    failures: dict[str, int] = field(default_factory=dict[str, int])
    fatal_errors: int = 0
    seconds: float = 0.0

    @property
    def hit_batches(self) -> bool:
        """Whether a kill hit a batch in flight (acks=0 has none: nothing is awaited)."""
        hits = (f for f in self.faults if f.failover_ms is not None and f.batches.unanswered)
        return self.broken == "acks=0" or any(hits)

    @property
    def is_proof(self) -> bool:
        """Whether faults hit batches in flight, and transactions that were open."""
        return self.hit_batches and any(f.open_transactions for f in self.faults)

    @property
    def findings(self) -> list[Finding]:
        """All violations."""
        found = list(self.inputs.violations) if self.inputs else []
        found += self.outputs.violations if self.outputs else ()
        found += self.at_the_end
        return [*found, *([self.wrong_sums] if self.wrong_sums else [])]

    @property
    def exit_code(self) -> int:
        """0 exactly once; 1 violated; 3 not violated, but not a proof either."""
        return 1 if self.findings else 0 if self.is_proof else 3


class Demo:
    """Conducts one run on a started cluster of three nodes."""

    def __init__(
        self, cluster: Cluster, seed: int, broken: str, say: Callable[[str], None]
    ) -> None:
        self.cluster, self.say = cluster, say
        self.report = DemoReport(seed, broken)
        self._dice = random.Random(f"oncelog demo, more kills {seed}")
        self._producer_settings, self._topic_settings = BREAKS[broken]

    def run(
        self,
        on_start: Callable[[Stream, Workers], None] = lambda stream, workers: None,
        *,
        kinds: tuple[str, ...] = fault_plan.KINDS,
        rows: int | None = None,
    ) -> DemoReport:
        """Stream, work, break, read back, judge; `kinds` and `rows` make it shorter."""
        started = time.monotonic()
        lines = flights.lines()[:rows]
        self._create_topics()
        stream, workers = self._stream(lines), self._workers()
        try:
            on_start(stream, workers)
            stream.start()
            workers.start_all()
            self._strike(stream, workers, kinds)
            self._drain(stream, workers)
            workers.stop()
        finally:
            workers.close()
            stream.finish.set()
        self._judge(stream, workers, lines)
        workers.remove_logs()
        self.report.failures = stream.failures
        self.report.fatal_errors = stream.fatal_errors
        self.report.worker_restarts = workers.restarts
        self.report.seconds = time.monotonic() - started
        return self.report

    # --- the parts

    def _create_topics(self) -> None:
        for topic in (TOPIC, ENRICHED, SUMS):
            configs = self._topic_settings if topic == TOPIC else SAFE_TOPIC
            self.cluster.ask(
                lambda admin, topic=topic, configs=configs: admin.create_topic(
                    topic, partitions=PARTITIONS, replication_factor=REPLICAS, configs=configs
                )
            )
            self.cluster.wait_for_isr(topic, REPLICAS)
        self.cluster.coordinator("group", GROUP)  # makes the topic of offsets
        self.cluster.wait_for_isr(OFFSETS, REPLICAS)

    def _stream(self, lines: list[bytes]) -> Stream:
        return Stream(
            lines,
            TOPIC,
            self.cluster.client_config(**self._producer_settings),
            reserve=min(RESERVE_ROWS, len(lines) // 4),
            outlives_fatal_errors=self.report.broken == "unclean",
        )

    def _workers(self) -> Workers:
        settings = [
            WorkerSettings(
                bootstrap=self.cluster.bootstrap,
                name=name,
                incarnation=0,
                group=GROUP,
                source=TOPIC,
                enriched=ENRICHED,
                sums=SUMS,
                session_ms=SESSION_MS,
                transaction_ms=TRANSACTION_TIMEOUT_MS,
                is_fenced=self.report.broken != FENCE_OFF,
            )
            for name in WORKERS
        ]
        return Workers(settings, self.cluster.data)

    # --- the course

    def _strike(self, stream: Stream, workers: Workers, kinds: tuple[str, ...]) -> None:
        topics = [TOPIC, ENRICHED, SUMS, OFFSETS]
        faults = Faults(
            self.cluster, stream, workers, topics=topics, partitions=PARTITIONS, group=GROUP
        )
        self._wait_for_the_first(stream, workers)
        planned = fault_plan.plan(self.report.seed, partitions=PARTITIONS, workers=len(WORKERS))
        for fault in planned:
            if fault.kind in kinds:
                self._inflict(faults, fault)
        for _ in range(EXTRA_KILLS_MAX):
            if self.report.hit_batches:
                break
            self.say("no kill has hit a batch in flight yet, which proves nothing: once more")
            self._inflict(faults, fault_plan.draw("kill", self._dice, PARTITIONS))
        stream.finish.set()
        while stream.is_alive():
            stream.join(0.1)
            faults.check()
        faults.check()
        faults.wait_until_whole()

    def _inflict(self, faults: Faults, fault: fault_plan.Fault) -> None:
        report = faults.inflict(fault)
        self.report.faults.append(report)
        self.say(describe(report))

    def _wait_for_the_first(self, stream: Stream, workers: Workers) -> None:
        """Until the producer and every worker are in their stride."""
        if not workers.wait(lambda: len(workers.last) == len(WORKERS), START_TIMEOUT_S):
            raise Failure(
                "Not every worker got something to do: "
                + ("flights come in, " if stream.acknowledged else "no flight was acknowledged, ")
                + f"and {sorted(workers.last) or 'no worker'} began a transaction. "
                f"Logs are under {self.cluster.data}."
            )

    def _drain(self, stream: Stream, workers: Workers) -> None:
        """Wait until the workers have committed all that is there."""

        def is_done() -> bool:
            if workers.failed is not None:
                raise workers.failed
            committed = self._committed()
            return all(committed.get(p, 0) >= end for p, end in self._input_ends().items())

        if not demo_reading.wait_for(is_done, DRAIN_TIMEOUT_S):
            self.say(f"the workers are not through after {DRAIN_TIMEOUT_S:.0f} s")

    def _committed(self) -> dict[int, int]:
        found = self.cluster.ask(lambda admin: admin.groups.committed(GROUP))
        return {p: value.offset for (topic, p), value in found.items() if topic == TOPIC}

    def _input_ends(self) -> dict[int, int]:
        ends = demo_reading.ends_of(self.cluster, [TOPIC])
        return {int(end.name.rpartition("/")[2]): end.high_watermark for end in ends}

    # --- the judgement

    def _judge(self, stream: Stream, workers: Workers, lines: list[bytes]) -> None:
        report, bootstrap = self.report, self.cluster.bootstrap
        report.at_the_end = self._judge_end()
        read = demo_reading.read_back(bootstrap, TOPIC, PARTITIONS)
        sent = [flights.record(row, line)[1] for row, line in enumerate(lines)]
        plain = [(p, offset, value) for p, offset, _, value in read]
        report.inputs = judge(sent, stream.acknowledged, plain, flights.row_of)
        inputs: dict[int, dict[int, bytes]] = {p: {} for p in range(PARTITIONS)}
        for partition, offset, value in plain:
            inputs[partition][offset] = value
        enriched = demo_reading.read_back(bootstrap, ENRICHED, PARTITIONS)
        report.outputs = judge_outputs(
            inputs,
            ((p, offset, value) for p, offset, _, value in enriched),
            demo_reading.read_back(bootstrap, SUMS, PARTITIONS),
            workers.transactions,
            flights.airlines(),
        )
        expected = flights.sums_of_csv(len(lines))
        report.groups = len(expected)
        report.wrong_sums = compare_sums(expected, report.outputs.totals)
        for told in workers.transactions.values():
            state = {"committed": "committed", "aborted": "aborted"}.get(told.state, "cut off")
            report.transactions[state] = report.transactions.get(state, 0) + 1
            report.withheld += told.records if told.state != "committed" else 0

    def _judge_end(self) -> list[Finding]:
        """Markers follow decisions, so a moment is allowed for them."""
        found: list[Finding] = []

        def is_settled() -> bool:
            opened: Mapping[str, str] = demo_reading.open_transactions(self.cluster)
            ends = demo_reading.ends_of(self.cluster)
            found[:] = judge_end(ends, opened, self._committed(), self._input_ends())
            return not found

        demo_reading.wait_for(is_settled, SETTLE_TIMEOUT_S)
        return found


def describe(report: FaultReport) -> str:
    """One line about a fault."""
    took = f"; it went on after {report.failover_ms:.0f} ms" if report.failover_ms else ""
    hit = f"{report.open_transactions} open transactions, {report.batches.unanswered} batches"
    return f"{report.what}{took}; hit {hit} in flight"
