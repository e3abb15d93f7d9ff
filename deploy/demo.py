"""`oncelog demo`: the flights go through a cluster whose leaders are killed, and a judge looks.

Three nodes, a topic of 6 partitions, RF 3, min.insync 2, one idempotent producer that anybody could
have written. The faults are drawn from a printed seed. Then everything is read back and judged.
`--break` takes one guarantee away and changes nothing else.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import fault_plan, flights
from .batch_trace import TraceCounts
from .demo_stream import Stream
from .failure import Failure
from .fault_plan import Fault
from .judge import Finding, Verdict, compare_sums, judge
from .local_cluster import Cluster

TOPIC, PARTITIONS, REPLICAS = "flights", 6, 3
FAILOVER_TIMEOUT_S, READ_TIMEOUT_S = 20.0, 60.0
EXTRA_KILLS_MAX = 5
STALL_S, LONE_LEADER_S, MISSED_S = 1.2, 0.6, 1.2
RESERVE_ROWS = 60_000  # kept for the time after the faults, and for kills that have to be repeated
IDEMPOTENT: dict[str, Any] = {"acks": "all", "enable.idempotence": True}
SAFE_TOPIC = {"min.insync.replicas": "2"}
# What each --break changes: the producer's settings, the topic's settings.
BREAKS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "none": (IDEMPOTENT, SAFE_TOPIC),
    "acks=1": ({"acks": "1", "enable.idempotence": False}, SAFE_TOPIC),
    "acks=0": ({"acks": "0", "enable.idempotence": False}, SAFE_TOPIC),
    "idempotence=off": ({"acks": "all", "enable.idempotence": False}, SAFE_TOPIC),
    "unclean": (
        IDEMPOTENT,
        {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
    ),
}


@dataclass(frozen=True, slots=True)
class FaultReport:
    """What one fault did, as far as the producer could tell."""

    kind: str
    what: str
    failover_ms: float | None  # until the slowest partition acknowledged a new row; None: no kill
    batches: TraceCounts
    unreported_rows: int


@dataclass(slots=True)
class DemoReport:
    """Everything that the demo found out."""

    seed: int
    broken: str
    faults: list[FaultReport] = field(default_factory=list[FaultReport])
    verdict: Verdict | None = None
    wrong_sums: Finding | None = None
    groups: int = 0
    failures: dict[str, int] = field(default_factory=dict[str, int])
    fatal_errors: int = 0
    seconds: float = 0.0

    @property
    def is_proof(self) -> bool:
        """Whether at least one kill hit a batch in flight (acks=0 has none: nothing is awaited)."""
        hits = (f for f in self.faults if f.failover_ms is not None and f.batches.unanswered)
        return self.broken == "acks=0" or any(hits)

    @property
    def findings(self) -> list[Finding]:
        """All violations."""
        found = list(self.verdict.violations) if self.verdict else []
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
        self.stream: Stream | None = None

    def run(self, on_stream: Callable[[Stream], None] = lambda stream: None) -> DemoReport:
        """Stream, break, read back, judge."""
        started = time.monotonic()
        lines = flights.lines()
        self.cluster.ask(
            lambda admin: admin.create_topic(
                TOPIC,
                partitions=PARTITIONS,
                replication_factor=REPLICAS,
                configs=self._topic_settings,
            )
        )
        self.cluster.wait_for_isr(TOPIC, REPLICAS)
        settings = self.cluster.client_config(**self._producer_settings)
        self.stream = stream = Stream(
            lines,
            TOPIC,
            settings,
            reserve=RESERVE_ROWS,
            outlives_fatal_errors=self.report.broken == "unclean",
        )
        on_stream(stream)
        stream.start()
        self._wait_for_first_acknowledgement(stream)
        for fault in fault_plan.plan(self.report.seed, partitions=PARTITIONS):
            self._inflict(stream, fault)
        for _ in range(EXTRA_KILLS_MAX):
            if self.report.is_proof:
                break
            self.say("no kill has hit a batch in flight yet, which proves nothing: once more")
            self._inflict(stream, fault_plan.draw("kill", self._dice, PARTITIONS))
        stream.finish.set()
        while stream.is_alive():
            stream.join(0.1)
        if stream.fatal is not None:
            raise stream.fatal
        self.cluster.wait_for_isr(TOPIC, REPLICAS)
        self._judge(stream, lines)
        self.report.failures = stream.failures
        self.report.fatal_errors = stream.fatal_errors
        self.report.seconds = time.monotonic() - started
        return self.report

    # --- faults

    def _inflict(self, stream: Stream, fault: Fault) -> None:
        before = stream.trace.counts
        inflict = {
            "kill": self._kill,
            "two": self._two,
            "stall": self._stall,
            "stall-kill": self._stall_and_kill,
            "blackout": self._blackout,
        }[fault.kind]
        what, failover_ms, unreported = inflict(stream, fault)
        self.cluster.wait_for_isr(TOPIC, REPLICAS)
        counts = stream.trace.counts.since(before)
        report = FaultReport(fault.kind, what, failover_ms, counts, unreported)
        self.report.faults.append(report)
        self.say(describe(report))
        if stream.fatal is not None:
            raise stream.fatal

    def _kill(self, stream: Stream, fault: Fault) -> tuple[str, float, int]:
        node = self._leader(fault.partition)
        killed_at, unreported = self._kill_in_a_burst(stream, node, fault.burst_s)
        failover_ms = self._await_failover(stream, killed_at)
        time.sleep(fault.outage_s)
        self.cluster.start(node)
        return f"killed node {node}, leader of {TOPIC}/{fault.partition}", failover_ms, unreported

    def _two(self, stream: Stream, fault: Fault) -> tuple[str, float, int]:
        first = self._leader(fault.partition)
        killed_at, first_unreported = self._kill_in_a_burst(stream, first, fault.burst_s)
        first_ms = self._await_failover(stream, killed_at)
        self.cluster.start(first)
        second = self._leader((fault.partition + 1) % PARTITIONS)
        killed_at, unreported = self._kill_in_a_burst(stream, second, fault.burst_s)
        self.cluster.start(second)  # the first may be out of sync still: two are needed
        second_ms = self._await_failover(stream, killed_at)
        what = f"killed node {first} and, as soon as it was back, node {second}"
        return what, max(first_ms, second_ms), first_unreported + unreported

    def _stall(self, stream: Stream, fault: Fault) -> tuple[str, None, int]:
        node = self._followers(fault.partition)[0]
        with _bursting(stream):
            time.sleep(fault.burst_s)
            self.cluster.pause(node)
        unreported = stream.unreported
        time.sleep(STALL_S)
        self.cluster.resume(node)
        return f"node {node}, a follower, stood still for {STALL_S} s", None, unreported

    def _stall_and_kill(self, stream: Stream, fault: Fault) -> tuple[str, float, int]:
        leader, followers = self._leader(fault.partition), self._followers(fault.partition)
        led = self._led_by(leader)
        for node in followers:
            self.cluster.pause(node)
        with _bursting(stream):
            time.sleep(LONE_LEADER_S)
            self.cluster.kill(leader)
            killed_at, unreported = time.monotonic(), stream.unreported
            stream.watch(led)
        for node in followers:
            self.cluster.resume(node)
        failover_ms = self._await_failover(stream, killed_at)
        time.sleep(fault.outage_s)
        self.cluster.start(leader)
        what = f"nodes {followers} stood still, leader {leader} went on alone and was killed"
        return what, failover_ms, unreported

    def _blackout(self, stream: Stream, fault: Fault) -> tuple[str, float, int]:
        leader = self._leader(fault.partition)
        first, other = self._followers(fault.partition)
        self.cluster.kill(first)
        self._wait_until_out_of_sync(first)
        with _bursting(stream):
            time.sleep(fault.burst_s)
        time.sleep(MISSED_S)
        with _bursting(stream):
            time.sleep(fault.burst_s)
            self.cluster.kill(leader)
            self.cluster.kill(other)
            killed_at, unreported = time.monotonic(), stream.unreported
            stream.watch(range(PARTITIONS))
        time.sleep(fault.outage_s)
        self.cluster.start_all([first, other])
        failover_ms = self._await_failover(stream, killed_at)
        self.cluster.start(leader)
        what = f"node {first} missed something, {leader} and {other} died at once, it came first"
        return what, failover_ms, unreported

    # --- parts of faults

    def _kill_in_a_burst(self, stream: Stream, node: int, burst_s: float) -> tuple[float, int]:
        led = self._led_by(node)
        with _bursting(stream):
            time.sleep(burst_s)
            unreported = stream.unreported
            self.cluster.kill(node)
            killed_at = time.monotonic()
            stream.watch(led)
        return killed_at, unreported

    def _await_failover(self, stream: Stream, killed_at: float) -> float:
        """Milliseconds until every watched partition acknowledged a row handed over later."""
        deadline = killed_at + FAILOVER_TIMEOUT_S
        while None in (seen := stream.first_acknowledged_at()).values():
            if time.monotonic() > deadline or stream.fatal is not None:
                if stream.fatal is not None:
                    raise stream.fatal
                mute = sorted(p for p, at in seen.items() if at is None)
                raise Failure(
                    f"{TOPIC}/{mute} acknowledged nothing for {FAILOVER_TIMEOUT_S:.0f} s after the "
                    f"kill. The nodes' logs are under {self.cluster.data}."
                )
            time.sleep(0.002)
        return (max((at for at in seen.values() if at), default=killed_at) - killed_at) * 1000

    def _leader(self, partition: int) -> int:
        return self.cluster.leader(TOPIC, partition)

    def _led_by(self, node: int) -> list[int]:
        described = self.cluster.ask(lambda admin: admin.describe_topics([TOPIC]))
        return [p.partition for p in described if p.leader == node]

    def _followers(self, partition: int) -> list[int]:
        leader = self._leader(partition)
        return [node for node in self.cluster.node_ids if node != leader]

    def _wait_until_out_of_sync(self, node: int) -> None:
        deadline = time.monotonic() + FAILOVER_TIMEOUT_S
        while time.monotonic() < deadline:
            described = self.cluster.ask(lambda admin: admin.describe_topics([TOPIC]))
            if all(node not in p.isr for p in described):
                return
            time.sleep(0.02)
        raise Failure(f"Node {node} is dead and still counted as in sync.")

    def _wait_for_first_acknowledgement(self, stream: Stream) -> None:
        deadline = time.monotonic() + FAILOVER_TIMEOUT_S
        while not stream.acknowledged and stream.fatal is None:
            if time.monotonic() > deadline:
                raise Failure("The producer got no acknowledgement: the cluster does not serve it.")
            time.sleep(0.01)
        time.sleep(0.3)

    # --- the judgement

    def _judge(self, stream: Stream, lines: list[bytes]) -> None:
        sent = [flights.record(row, line)[1] for row, line in enumerate(lines)]
        read = read_back(self.cluster.bootstrap, TOPIC, PARTITIONS)
        self.report.verdict = judge(sent, stream.acknowledged, read, flights.row_of)
        expected = flights.sums_of_csv()
        found = flights.sums_of_records(value for _, _, value in read)
        self.report.groups = len(expected)
        self.report.wrong_sums = compare_sums(expected, found)


class _bursting:
    """Full speed inside the `with`."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        self._stream.burst.set()

    def __exit__(self, *_: object) -> None:
        self._stream.burst.clear()


def read_back(bootstrap: str, topic: str, partitions: int) -> list[tuple[int, int, bytes]]:
    """Every record of the topic as (partition, offset, value), by a plain consumer."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": "oncelog-demo",  # assigned by hand: no group is formed, nothing is committed
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
    })  # fmt: skip
    read: list[tuple[int, int, bytes]] = []
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        open_ends, deadline = set(range(partitions)), time.monotonic() + READ_TIMEOUT_S
        while open_ends:
            if time.monotonic() > deadline:
                raise Failure(f"Reading {topic} back took more than {READ_TIMEOUT_S:.0f} s.")
            for message in consumer.consume(5_000, 0.5):
                error = message.error()
                if error is None:
                    at = (message.partition() or 0, message.offset() or 0)  # never None here
                    read.append((*at, message.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ends.discard(message.partition())
                elif not error.retriable():
                    raise Failure(f"Reading {topic} back failed: {error.str()}")
    finally:
        consumer.close()
    return read


def describe(report: FaultReport) -> str:
    """One line about a fault."""
    b = report.batches
    took = f"; writes went on after {report.failover_ms:.0f} ms" if report.failover_ms else ""
    return (
        f"{report.what}{took}; {b.unanswered} batches ({b.unanswered_records} records) "
        f"unacknowledged in flight, {b.sent_again} sent again"
    )
