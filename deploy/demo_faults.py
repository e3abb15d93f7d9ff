"""The demo's faults, inflicted: each is aimed at work in flight, and proved to have happened.

Kinds and their purpose stand in fault_plan.py. After each the conductor waits until every replica
is in sync again, so that one fault does not become another.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .batch_trace import TraceCounts
from .demo_stream import Stream
from .demo_workers import Told, Workers
from .failure import Failure
from .fault_plan import Fault
from .local_cluster import Cluster

FAILOVER_TIMEOUT_S = 25.0
STALL_S, LONE_LEADER_S, MISSED_S = 1.2, 0.6, 1.2
AIM_ATTEMPTS_MAX = 30
TAKEOVER_TIMEOUT_S = 12.0  # must be over before the sleeper's transaction times out
OPEN = ("began", "sending", "committing")


@dataclass(frozen=True, slots=True)
class FaultReport:
    """What one fault did, as far as the producer and the workers could tell."""

    kind: str
    what: str
    failover_ms: float | None  # until whatever was struck went on; None: nothing was killed
    batches: TraceCounts
    open_transactions: int  # when it struck


@dataclass(frozen=True, slots=True)
class _Effect:
    what: str
    open_transactions: int
    failover_ms: float | None = None


class Faults:
    """Strikes a running demo."""

    def __init__(
        self,
        cluster: Cluster,
        stream: Stream,
        workers: Workers,
        *,
        topics: list[str],
        partitions: int,
        group: str,
    ) -> None:
        self.cluster, self.stream, self.workers = cluster, stream, workers
        self.source, self.topics, self.group = topics[0], topics, group
        self.partitions = partitions  # of the source

    def inflict(self, fault: Fault) -> FaultReport:
        """Do it, wait until the cluster is whole again, and tell."""
        before = self.stream.trace.counts
        inflict: dict[str, Callable[[Fault], _Effect]] = {
            "kill": self._kill,
            "two": self._two,
            "stall": self._stall,
            "stall-kill": self._stall_and_kill,
            "blackout": self._blackout,
            "transaction": self._transaction,
            "group": self._group,
            "worker": self._worker,
            "zombie": self._zombie,
        }
        effect = inflict[fault.kind](fault)
        self.wait_until_whole()
        self.check()
        batches = self.stream.trace.counts.since(before)
        return FaultReport(
            fault.kind, effect.what, effect.failover_ms, batches, effect.open_transactions
        )

    def wait_until_whole(self) -> None:
        """Return when every replica of every topic is in sync."""
        for topic in self.topics:
            self.cluster.wait_for_isr(topic, len(self.cluster.node_ids))

    def check(self) -> None:
        """Raise what stopped the stream or the workers."""
        if self.stream.fatal is not None:
            raise self.stream.fatal
        if self.workers.failed is not None:
            raise self.workers.failed

    # --- of brokers

    def _kill(self, fault: Fault) -> _Effect:
        node = self._leader(fault.partition)
        killed_at, hit = self._kill_in_a_burst(node, fault.burst_s)
        failover_ms = self._await_writes(killed_at)
        time.sleep(fault.outage_s)
        self.cluster.start(node)
        what = f"killed node {node}, leader of {self.source}/{fault.partition}"
        return _Effect(what, hit, failover_ms)

    def _two(self, fault: Fault) -> _Effect:
        first = self._leader(fault.partition)
        killed_at, first_hit = self._kill_in_a_burst(first, fault.burst_s)
        first_ms = self._await_writes(killed_at)
        self.cluster.start(first)
        second = self._leader((fault.partition + 1) % self.partitions)
        killed_at, hit = self._kill_in_a_burst(second, fault.burst_s)
        self.cluster.start(second)  # the first may be out of sync still: two are needed
        second_ms = self._await_writes(killed_at)
        what = f"killed node {first} and, as soon as it was back, node {second}"
        return _Effect(what, first_hit + hit, max(first_ms, second_ms))

    def _stall(self, fault: Fault) -> _Effect:
        node = self._followers(fault.partition)[0]
        with bursting(self.stream):
            time.sleep(fault.burst_s)
            self.cluster.pause(node)
        hit = self._open_now()
        time.sleep(STALL_S)
        self.cluster.resume(node)
        return _Effect(f"node {node}, a follower, stood still for {STALL_S} s", hit)

    def _stall_and_kill(self, fault: Fault) -> _Effect:
        leader, followers = self._leader(fault.partition), self._followers(fault.partition)
        led = self._led_by(leader)
        for node in followers:
            self.cluster.pause(node)
        with bursting(self.stream):
            time.sleep(LONE_LEADER_S)
            self.cluster.kill(leader)
            killed_at, hit = time.monotonic(), self._open_now()
            self.stream.watch(led)
        for node in followers:
            self.cluster.resume(node)
        failover_ms = self._await_writes(killed_at)
        time.sleep(fault.outage_s)
        self.cluster.start(leader)
        what = f"nodes {followers} stood still, leader {leader} went on alone and was killed"
        return _Effect(what, hit, failover_ms)

    def _blackout(self, fault: Fault) -> _Effect:
        leader = self._leader(fault.partition)
        first, other = self._followers(fault.partition)
        self.cluster.kill(first)
        self._wait_until_out_of_sync(first)
        with bursting(self.stream):
            time.sleep(fault.burst_s)
        time.sleep(MISSED_S)
        with bursting(self.stream):
            time.sleep(fault.burst_s)
            self.cluster.kill(leader)
            self.cluster.kill(other)
            killed_at, hit = time.monotonic(), self._open_now()
            self.stream.watch(range(self.partitions))
        time.sleep(fault.outage_s)
        self.cluster.start_all([first, other])
        failover_ms = self._await_writes(killed_at)
        self.cluster.start(leader)
        what = f"node {first} missed something, {leader} and {other} died at once, it came first"
        return _Effect(what, hit, failover_ms)

    # --- of transactions

    def _transaction(self, fault: Fault) -> _Effect:
        name = self.workers.names[fault.worker]
        node = self.cluster.coordinator("txn", name)
        told = self._await_transaction(name, fault.moment)
        self.cluster.kill(node)
        killed_at, hit = time.monotonic(), self._open_now()
        failover_ms = self._await_commits([name], killed_at)
        time.sleep(fault.outage_s)
        self.cluster.start(node)
        what = f"killed node {node}, coordinator of transaction {told.name}, {fault.moment}"
        return _Effect(what, hit, failover_ms)

    def _group(self, fault: Fault) -> _Effect:
        node = self.cluster.coordinator("group", self.group)
        self._await_transaction(self.workers.names[fault.worker], fault.moment)
        self.cluster.kill(node)
        killed_at, hit = time.monotonic(), self._open_now()
        failover_ms = self._await_commits(self.workers.names, killed_at)
        time.sleep(fault.outage_s)
        self.cluster.start(node)
        return _Effect(f"killed node {node}, coordinator of group {self.group}", hit, failover_ms)

    def _worker(self, fault: Fault) -> _Effect:
        name = self.workers.names[fault.worker]
        told = self._await_transaction(name, fault.moment)
        self.workers.kill(name)
        killed_at, hit = time.monotonic(), int(told.state in OPEN)
        time.sleep(fault.outage_s)
        self.workers.start(name)
        failover_ms = self._await_commits([name], killed_at)
        return _Effect(f"killed {name} in transaction {told.name}, {told.state}", hit, failover_ms)

    def _zombie(self, fault: Fault) -> _Effect:
        name = self.workers.names[fault.worker]
        told = self._stop_within_a_transaction(name)
        try:
            taken_over = self._await_takeover(told)
        finally:
            self.workers.resume(name)
        if not self.workers.wait(lambda: told.state not in OPEN or self._has_left(told), 30):
            raise Failure(f"{name} was woken, and its transaction {told.name} never ended.")
        end = told.state if told.state not in OPEN else "fenced"
        also = f" ({told.why})" if told.why else ""
        what = f"{name} stood still in transaction {told.name} "
        what += "until another had done its work" if taken_over else "for a while"
        return _Effect(f"{what}, and woke: {end}{also}", 1)

    # --- parts of faults

    def _kill_in_a_burst(self, node: int, burst_s: float) -> tuple[float, int]:
        """When it died, and how many transactions were open then."""
        led = self._led_by(node)
        with bursting(self.stream):
            time.sleep(burst_s)
            self.cluster.kill(node)
            killed_at, hit = time.monotonic(), self._open_now()
            self.stream.watch(led)
        return killed_at, hit

    def _await_writes(self, killed_at: float) -> float:
        """Milliseconds until every watched partition acknowledged a row handed over later."""
        deadline = killed_at + FAILOVER_TIMEOUT_S
        while None in (seen := self.stream.first_acknowledged_at()).values():
            self.check()
            if time.monotonic() > deadline:
                mute = sorted(p for p, at in seen.items() if at is None)
                raise Failure(
                    f"{self.source}/{mute} acknowledged nothing for {FAILOVER_TIMEOUT_S:.0f} s "
                    f"after the kill. The nodes' logs are under {self.cluster.data}."
                )
            time.sleep(0.002)
        return (max((at for at in seen.values() if at), default=killed_at) - killed_at) * 1000

    def _await_commits(self, names: Iterable[str], killed_at: float) -> float:
        """Milliseconds until each of these workers committed a transaction that it began later."""

        def when() -> list[float | None]:
            committed = self.workers.committed_after(killed_at)
            return [committed[name] for name in names]

        if not self.workers.wait(lambda: None not in when(), FAILOVER_TIMEOUT_S):
            raise Failure(
                f"Not all workers committed anything for {FAILOVER_TIMEOUT_S:.0f} s after the "
                f"kill. Logs are under {self.cluster.data}."
            )
        return (max((at for at in when() if at), default=killed_at) - killed_at) * 1000

    def _await_transaction(self, name: str, moment: str) -> Told:
        """A transaction of this worker that has just come so far."""
        known = self.workers.last.get(name)
        before = known.name if known is not None else ""

        def has_come() -> bool:
            told = self.workers.last.get(name)
            return told is not None and told.name != before and told.state == moment

        if not self.workers.wait(has_come, FAILOVER_TIMEOUT_S):
            raise Failure(f"{name} began no transaction. Its log is in {self.cluster.data}.")
        return self.workers.last[name]

    def _stop_within_a_transaction(self, name: str) -> Told:
        """Stop the worker after it has read its inputs, and before it sends their offsets."""
        for _ in range(AIM_ATTEMPTS_MAX):
            self._await_transaction(name, "began")
            self.workers.pause(name)
            told = self.workers.last[name]
            if told.state == "began":
                return told
            self.workers.resume(name)
        raise Failure(f"{name} could not be stopped within a transaction.")

    def _await_takeover(self, told: Told) -> bool:
        """Whether another worker has committed what this transaction was to do, in time."""
        deadline = time.monotonic() + TAKEOVER_TIMEOUT_S
        while time.monotonic() < deadline:
            committed = self.committed_offsets()
            if all(committed.get(p, 0) >= until for p, until in told.until.items()):
                return True
            time.sleep(0.05)
        return False

    def _has_left(self, told: Told) -> bool:
        """Whether the worker has been started again since: it was fenced, and ended."""
        return self.workers.last[told.worker].name != told.name

    def committed_offsets(self) -> dict[int, int]:
        """Of the group, by partition."""
        found = self.cluster.ask(lambda admin: admin.groups.committed(self.group))
        return {p: value.offset for (topic, p), value in found.items() if topic == self.source}

    def _open_now(self) -> int:
        return sum(told.state in OPEN for told in self.workers.last.values())

    def _leader(self, partition: int) -> int:
        return self.cluster.leader(self.source, partition)

    def _led_by(self, node: int) -> list[int]:
        described = self.cluster.ask(lambda admin: admin.describe_topics([self.source]))
        return [p.partition for p in described if p.leader == node]

    def _followers(self, partition: int) -> list[int]:
        leader = self._leader(partition)
        return [node for node in self.cluster.node_ids if node != leader]

    def _wait_until_out_of_sync(self, node: int) -> None:
        deadline = time.monotonic() + FAILOVER_TIMEOUT_S
        while time.monotonic() < deadline:
            described = self.cluster.ask(lambda admin: admin.describe_topics(self.topics))
            if all(node not in p.isr for p in described):
                return
            time.sleep(0.02)
        raise Failure(f"Node {node} is dead and still counted as in sync.")


class bursting:
    """Full speed inside the `with`."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        self._stream.burst.set()

    def __exit__(self, *_: object) -> None:
        self._stream.burst.clear()
