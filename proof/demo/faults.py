"""The demo's faults of brokers, each at a moment with work in flight, and each verified.

fault_plan.py describes the kinds and their purpose. After each fault, every replica is in sync
again before the next fault, so that one fault does not become another.
"""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...deploy.cluster.failure import Failure
from ...deploy.cluster.local_cluster import Cluster
from ...deploy.faults.engine import FaultContext
from ...deploy.faults.schedule import Fault
from .batch_trace import TraceCounts
from .engine import FAILOVER_TIMEOUT_S, Effect, last_ms
from .engines import Engine
from .fault_plan import burst_s, outage_s
from .stream import Stream

STALL_S, LONE_LEADER_S, MISSED_S = 1.2, 0.6, 1.2


class FaultReport(NamedTuple):
    """The effect of one fault, as the engine and the producer reported it."""

    kind: str
    effect: Effect
    batches: TraceCounts


class DemoFaults(FaultContext[Cluster]):
    """Injects the demo's faults, one at a time. Those of transactions are left to the engine."""

    def __init__(
        self,
        cluster: Cluster,
        stream: Stream,
        engine: Engine,
        *,
        topics: list[str],
        partitions: int,
    ) -> None:
        super().__init__(cluster)
        self.stream, self.engine = stream, engine
        self.source, self.topics = topics[0], topics
        self.partitions = partitions  # of the source

    def inflict(self, fault: Fault) -> FaultReport:
        """Inject a fault, wait until every replica is in sync again, and return the report."""
        before = self.stream.trace.counts
        actions: Mapping[str, Callable[[Fault], Effect]] = {
            "kill": self._kill,
            "two": self._two,
            "stall": self._stall,
            "stall-kill": self._stall_and_kill,
            "blackout": self._blackout,
        }
        effect = actions.get(fault.kind, self.engine.inflict)(fault)
        self.hit(fault, effect.what)
        self.wait_until_whole()
        self.check()
        return FaultReport(fault.kind, effect, self.stream.trace.counts.since(before))

    def wait_until_whole(self) -> None:
        """Return when every replica of every topic is in sync."""
        for topic in self.topics:
            self.cluster.wait_for_isr(topic, len(self.cluster.node_ids))

    def check(self) -> None:
        """Raise the error that stopped the stream or the engine, if one has stopped."""
        if self.stream.fatal is not None:
            raise self.stream.fatal
        self.engine.processes.check()

    # --- of brokers

    def _kill(self, fault: Fault) -> Effect:
        partition = self._partition(fault)
        node = self._leader(partition)
        killed_at, hit = self._kill_in_a_burst(node, burst_s(fault))
        failover_ms = self._await_writes(killed_at)
        time.sleep(outage_s(fault))
        self.cluster.start(node)
        return Effect(f"killed node {node}, leader of {self.source}/{partition}", hit, failover_ms)

    def _two(self, fault: Fault) -> Effect:
        partition = self._partition(fault)
        first = self._leader(partition)
        killed_at, first_hit = self._kill_in_a_burst(first, burst_s(fault))
        first_ms = self._await_writes(killed_at)
        self.cluster.start(first)
        second = self._leader((partition + 1) % self.partitions)
        killed_at, hit = self._kill_in_a_burst(second, burst_s(fault))
        self.cluster.start(second)  # the first may still be out of sync: two are needed
        second_ms = self._await_writes(killed_at)
        what = f"killed node {first} and, as soon as it was back, node {second}"
        return Effect(what, first_hit + hit, max(first_ms, second_ms))

    def _stall(self, fault: Fault) -> Effect:
        node = self._followers(self._partition(fault))[0]
        with self.stream.bursting():
            time.sleep(burst_s(fault))
            hit = self.engine.open_transactions()
            self.cluster.pause(node)
        time.sleep(STALL_S)
        self.cluster.resume(node)
        return Effect(f"node {node}, a follower, was paused for {STALL_S} s", hit)

    def _stall_and_kill(self, fault: Fault) -> Effect:
        partition = self._partition(fault)
        leader, followers = self._leader(partition), self._followers(partition)
        led, hit = self._led_by(leader), self.engine.open_transactions()
        for node in followers:
            self.cluster.pause(node)
        with self.stream.bursting():
            time.sleep(LONE_LEADER_S)
            self.cluster.kill(leader)
            killed_at = time.monotonic()
            self.stream.watch(led)
        for node in followers:
            self.cluster.resume(node)
        failover_ms = self._await_writes(killed_at)
        time.sleep(outage_s(fault))
        self.cluster.start(leader)
        what = f"nodes {followers} were paused, and leader {leader} continued alone and was killed"
        return Effect(what, hit, failover_ms)

    def _blackout(self, fault: Fault) -> Effect:
        partition = self._partition(fault)
        leader = self._leader(partition)
        first, other = self._followers(partition)
        self.cluster.kill(first)
        self._wait_until_out_of_sync(first)
        with self.stream.bursting():
            time.sleep(burst_s(fault))
        time.sleep(MISSED_S)
        with self.stream.bursting():
            time.sleep(burst_s(fault))
            hit = self.engine.open_transactions()
            self.cluster.kill(leader)
            self.cluster.kill(other)
            killed_at = time.monotonic()
            self.stream.watch(range(self.partitions))
        time.sleep(outage_s(fault))
        self.cluster.start_all([first, other])
        failover_ms = self._await_writes(killed_at)
        self.cluster.start(leader)
        what = f"node {first} missed something, {leader} and {other} died at once, it came first"
        return Effect(what, hit, failover_ms)

    # --- parts of faults

    def _kill_in_a_burst(self, node: int, burst_s: float) -> tuple[float, int]:
        """Kill a node under full load. Return when it died, and how many transactions were open."""
        led = self._led_by(node)
        with self.stream.bursting():
            time.sleep(burst_s)
            hit = self.engine.open_transactions()
            self.cluster.kill(node)
            killed_at = time.monotonic()
            self.stream.watch(led)
        return killed_at, hit

    def _await_writes(self, killed_at: float) -> float:
        """Wait until every watched partition has acknowledged a row that was sent after the kill.

        Return the ms since the kill. Raises Failure after FAILOVER_TIMEOUT_S.
        """
        deadline = killed_at + FAILOVER_TIMEOUT_S
        while None in (seen := dict(self.stream.watched)).values():
            self.check()
            if time.monotonic() > deadline:
                mute = sorted(p for p, at in seen.items() if at is None)
                raise Failure(
                    f"{self.source}/{mute} acknowledged nothing for {FAILOVER_TIMEOUT_S:.0f} s "
                    f"after the kill. The nodes' logs are under {self.cluster.data}."
                )
            time.sleep(0.002)
        return last_ms(seen.values(), killed_at)

    def _partition(self, fault: Fault) -> int:
        return fault.pick(0, range(self.partitions))

    def _leader(self, partition: int) -> int:
        return self.cluster.leader(self.source, partition)

    def _led_by(self, node: int) -> list[int]:
        described = self.cluster.ask(lambda admin: admin.describe_topics([self.source]))
        return [p.partition for p in described if p.leader == node]

    def _followers(self, partition: int) -> list[int]:
        leader = self._leader(partition)
        return [node for node in self.cluster.node_ids if node != leader]

    def _wait_until_out_of_sync(self, node: int) -> None:
        def is_out_of_sync() -> bool:
            described = self.cluster.ask(lambda admin: admin.describe_topics(self.topics))
            return all(node not in p.isr for p in described)

        self.until(is_out_of_sync, FAILOVER_TIMEOUT_S, f"the dead node {node} out of the ISR")
