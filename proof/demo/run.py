"""`oncelog demo` processes the flights on a cluster of failing nodes, and judges input and output.

The cluster has three nodes, and topics of 6 partitions, RF 3, min.insync 2. A plain producer sends
the flights. An engine (engine.py), which is a Spark job or two plain workers of one group, reads
the flights and writes enriched flights and running sums of delays. The faults are drawn from a
printed seed. Then everything is read back and judged. `--break` removes one guarantee of the
producer or the workers and changes nothing else.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ...deploy.cluster.failure import Failure
from ...deploy.cluster.local_cluster import Cluster
from ...deploy.faults.schedule import Fault, schedule
from ..judge.analysis.findings import Finding
from ..judge.contents import ContentsVerdict, compare_sums, judge_end, judge_stream
from . import fault_plan, flights, reading
from .engine import Account
from .engines import Engine
from .faults import DemoFaults, FaultReport
from .output_judge import OutputVerdict
from .spark_engine import SparkEngine
from .stream import Stream
from .verdict import exit_code
from .worker_engine import WorkerEngine

TOPIC, ENRICHED, SUMS = "flights", "enriched-flights", "delays"
PARTITIONS, REPLICAS = 6, 3
SETTLE_TIMEOUT_S = 20.0
EXTRA_KILLS_MAX = 5
CLUSTER_CONFIG = {"group.min.session.timeout.ms": "1000"}  # a dead worker is missed soon
RESERVE_ROWS = 60_000  # kept for the time after the faults, and for repeated kills
IDEMPOTENT: dict[str, Any] = {"acks": "all", "enable.idempotence": True}
SAFE_TOPIC = {"min.insync.replicas": "2"}
UNCLEAN_TOPIC = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
FENCE_OFF = "fence=off"
# The effect of each --break: the producer's settings, the settings of the topic of flights.
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
    seed: int
    broken: str
    engine: str = "workers"
    sums_by: str = ""
    faults: list[FaultReport] = field(default_factory=list[FaultReport])
    when: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    handed_over: int = 0
    acknowledged: int = 0
    inputs: ContentsVerdict = field(default_factory=ContentsVerdict)
    outputs: OutputVerdict = field(default_factory=OutputVerdict)
    at_the_end: tuple[Finding, ...] = ()
    wrong_totals: tuple[Finding, ...] = ()
    groups: int = 0
    account: Account = field(default_factory=lambda: Account(0, "", {}))
    restarts: int = 0
    failures: dict[str, int] = field(default_factory=dict[str, int])
    fatal_errors: int = 0
    seconds: float = 0.0

    @property
    def hit_batches(self) -> bool:
        """Return whether a kill hit a batch in flight. With acks=0 the result is always True."""
        kills = (f for f in self.faults if f.effect.failover_ms is not None)
        return self.broken == "acks=0" or any(f.batches.unanswered for f in kills)

    @property
    def is_proof(self) -> bool:
        """Return whether faults hit both batches in flight and open transactions."""
        return self.hit_batches and any(f.effect.open_transactions for f in self.faults)

    @property
    def findings(self) -> list[Finding]:
        read_back = (*self.inputs.violations, *self.outputs.violations)
        return [*read_back, *self.at_the_end, *self.wrong_totals]

    @property
    def exit_code(self) -> int:
        return exit_code(self)


class Demo:
    """One run on a started cluster of three nodes."""

    def __init__(
        self,
        cluster: Cluster,
        seed: int,
        broken: str,
        say: Callable[[str], None],
        engine: str = "workers",
        *,
        doing: Callable[[str], None] = lambda words: None,
    ) -> None:
        """Prepare a run. `doing` is called with a sentence whenever the run begins to wait."""
        self.cluster, self.say, self._doing = cluster, say, doing
        self.report = DemoReport(seed, broken, engine)
        self._started_s = 0.0
        self._producer_settings, self._topic_settings = BREAKS[broken]

    def run(
        self,
        on_start: Callable[[Stream, Engine], None] = lambda stream, engine: None,
        *,
        kinds: tuple[str, ...] | None = None,
        rows: int | None = None,
    ) -> DemoReport:
        """Produce the flights, process them during faults, read all back and judge.

        kinds: limits the kinds of faults. rows: limits the number of flights.
        """
        self._started_s = started = time.monotonic()
        lines = flights.lines()[:rows]
        engine = self._engine()
        self._doing("topics are made")
        self._create_topics()
        stream = self._stream(lines, engine)
        try:
            on_start(stream, engine)
            self._doing(f"the engine starts: {engine.name}")
            engine.start()
            stream.start()
            self._doing("the engine reads")
            self._strike(stream, engine, kinds)
            self._doing("the faults have ended, and the demo waits until all flights are enriched")
            self._drain(engine)
            self._doing("the engine ends")
            engine.stop()
        finally:
            engine.processes.close()
            stream.finish.set()
        self._doing("all outputs are read back and judged")
        self._judge(stream, engine, lines)
        engine.remove_files()
        self.report.failures = stream.failures
        self.report.fatal_errors = stream.fatal_errors
        self.report.restarts = engine.processes.restarts
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

    def _stream(self, lines: list[bytes], engine: Engine) -> Stream:
        return Stream(
            lines,
            TOPIC,
            self.cluster.client_config(**self._producer_settings),
            reserve=min(RESERVE_ROWS, len(lines) // 4),
            horizon_s=engine.horizon_s,
            outlives_fatal_errors=self.report.broken == "unclean",
        )

    def _engine(self) -> Engine:
        if self.report.engine == "spark":
            return SparkEngine(self.cluster, source=TOPIC, enriched=ENRICHED, sums=SUMS)
        is_fenced = self.report.broken != FENCE_OFF
        return WorkerEngine(
            self.cluster, source=TOPIC, enriched=ENRICHED, sums=SUMS, is_fenced=is_fenced
        )

    # --- the course

    def _strike(self, stream: Stream, engine: Engine, kinds: tuple[str, ...] | None) -> None:
        topics = [TOPIC, ENRICHED, SUMS, *engine.topics]
        faults = DemoFaults(self.cluster, stream, engine, topics=topics, partitions=PARTITIONS)
        if missing := engine.wait_until_at_work():
            came = "flights come in" if stream.acknowledged else "no flight was acknowledged"
            raise Failure(
                f"The engine is not at work: {came}, and {missing}. "
                f"Logs are under {self.cluster.data}."
            )
        possible = fault_plan.OF_BROKERS + engine.kinds
        for fault in fault_plan.plan(self.report.seed, possible):
            if kinds is None or fault.kind in kinds:
                self._inflict(faults, fault)
        seed = f"oncelog demo, more kills {self.report.seed}"
        for fault in islice(schedule(seed, ["kill"]), EXTRA_KILLS_MAX):
            if self.report.hit_batches:
                break
            self.say(
                "no kill has hit a batch in flight, which proves nothing, so one more kill follows"
            )
            self._inflict(faults, fault)
        self._doing("the faults have ended, and the remaining flights are sent")
        stream.finish.set()
        while stream.is_alive():
            stream.join(0.1)
            faults.check()
        faults.check()
        faults.wait_until_whole()

    def _inflict(self, faults: DemoFaults, fault: Fault) -> None:
        self._doing(f"fault {len(self.report.faults) + 1}: {fault.kind}")
        begun_s = time.monotonic() - self._started_s
        report = faults.inflict(fault)
        self.report.faults.append(report)
        self.report.when.append((begun_s, time.monotonic() - self._started_s))
        self.say(describe(report))

    def _drain(self, engine: Engine) -> None:
        """Wait until the engine has committed all inputs, at most its drain_timeout_s."""

        def is_done() -> bool:
            engine.processes.check()
            done = engine.done()
            return all(done.get(p, 0) >= end for p, end in self._input_ends().items())

        if not reading.wait_for(is_done, engine.drain_timeout_s):
            self.say(
                f"the engine has not committed all flights after {engine.drain_timeout_s:.0f} s"
            )

    def _input_ends(self) -> dict[int, int]:
        ends = reading.ends_of(self.cluster, [TOPIC])
        return {int(end.name.rpartition("/")[2]): end.high_watermark for end in ends}

    # --- the judgement

    def _judge(self, stream: Stream, engine: Engine, lines: list[bytes]) -> None:
        report, config = self.report, self.cluster.client_config()
        report.at_the_end = self._judge_end(engine)
        read = reading.read_back(config, TOPIC, PARTITIONS)
        sent = [flights.record(row, line)[1] for row, line in enumerate(lines)]
        plain = [(p, offset, value) for p, offset, _, value in read]
        report.handed_over, report.acknowledged = len(sent), len(stream.acknowledged)
        report.inputs = judge_stream(sent, stream.acknowledged, plain, flights.row_of)
        inputs: dict[int, dict[int, bytes]] = {p: {} for p in range(PARTITIONS)}
        for partition, offset, value in plain:
            inputs[partition][offset] = value
        report.outputs = engine.judge(
            inputs,
            reading.read_back(config, ENRICHED, PARTITIONS),
            reading.read_back(config, SUMS, PARTITIONS),
        )
        expected = engine.expected_sums(len(lines))
        report.groups, report.sums_by = len(expected), engine.sums_by
        report.wrong_totals = compare_sums(expected, report.outputs.totals)
        report.account = engine.account()

    def _judge_end(self, engine: Engine) -> tuple[Finding, ...]:
        """Check that all transactions have ended and all inputs are committed. Return the findings.

        The check is repeated for a while, since markers are written after a transaction is decided.
        """
        found: tuple[Finding, ...] = ()

        def is_settled() -> bool:
            nonlocal found
            opened = reading.open_transactions(self.cluster)
            ends = reading.ends_of(self.cluster)
            found = judge_end(ends, opened, engine.done(), self._input_ends())
            return not found

        reading.wait_for(is_settled, SETTLE_TIMEOUT_S)
        return found


def describe(report: FaultReport) -> str:
    effect = report.effect
    took = f"; writes continued after {effect.failover_ms:.0f} ms" if effect.failover_ms else ""
    hit = f"{effect.open_transactions} open transactions, {report.batches.unanswered} batches"
    return f"{effect.what}{took}; hit {hit} in flight"
