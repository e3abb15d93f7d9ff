"""The observer, which repeatedly requests the state of a cluster as `ClusterFacts`.

Each part (the cluster, offsets, log starts, transactions, groups, replicas) has its own period and
its own age, so a slow or refused part does not delay the others. A part that a cluster does not
serve is noted in `not_exposed` and requested again after a minute. `paced_connection` limits the
rate of requests. The observer never writes.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..client.admin import EARLIEST, LATEST, Admin
from ..client.transaction_admin import DescribedTransaction
from ..client.view_source import view_of
from ..deploy.cluster.failure import Failure
from ..deploy.inspect.explain import PartitionTransaction
from ..deploy.inspect.logged_events import EventLogs
from ..deploy.inspect.transaction_facts import OPEN_STATES, holders, without_ended
from ..wire.errors import ClusterAuthorizationFailed, KafkaError, UnsupportedVersion
from ..wire.identifiers import TopicPartition
from .changes import changes, rise
from .facts import ClusterEvent, ClusterFacts, ClusterSample, ObservedGroup, ObservedOffsets
from .logged import cluster_event
from .paced_connection import PacedConnection

TIMEOUT_MS, REQUEST_TIMEOUT_MS = 4_000, 2_000
REFUSED_AGAIN_S = 60.0
MIN_INSYNC_EVERY_MS = 10_000
LOGS_EVERY_S = 0.5
DESCRIBED_MAX = 1_000  # transactional ids, those with something open first
EVENTS_MAX, SAMPLES_MAX = 2_000, 1_800  # an hour
PERIODS_S = {
    "cluster": 2.0,
    "offsets": 2.0,
    "log starts": 10.0,
    "transactions": 2.0,
    "groups": 5.0,
    "replicas": 10.0,
}
WORDS = {
    "cluster": "nodes and leaders",
    "offsets": "offsets",
    "log starts": "the first offsets of logs",
    "transactions": "transactions",
    "groups": "consumer groups",
    "replicas": "sizes and lags of replicas",
}
Changes = Mapping[str, Any]
Listener = Callable[[ClusterFacts], None]


class Observer:
    """Requests the state of a cluster repeatedly, between `start` and `close`.

    logs: the node logs of a cluster on this machine. Events are read from them, and without `logs`
    found by comparing two states. Starts and ends of processes are always found by comparing.
    """

    def __init__(self, config: Mapping[str, Any], logs: EventLogs | None = None) -> None:
        self._logs = logs
        view = view_of({"request.timeout.ms": REQUEST_TIMEOUT_MS, **config})
        view.connection_type = PacedConnection
        self.admin = Admin(view, timeout_ms=TIMEOUT_MS)
        self.facts = ClusterFacts()
        self._events = deque[ClusterEvent](maxlen=EVENTS_MAX)
        self._samples = deque[ClusterSample](maxlen=SAMPLES_MAX)
        self._written = self._read = 0.0  # records and bytes, by the brokers of this machine
        self._ends: dict[TopicPartition, int] = {}  # as they were told last
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()

    def start(self, others: Mapping[str, tuple[float, Callable[[], Awaitable[Changes]]]]) -> None:
        """Begin to send requests.

        `others` has further parts by name, each with its period in seconds and a function that
        returns the facts of the part.
        """
        asked: dict[str, Callable[[], Awaitable[Changes]]] = {
            "cluster": self._cluster,
            "offsets": self._offsets,
            "log starts": self._log_starts,
            "transactions": self._transactions,
            "groups": self._groups,
            "replicas": self._replicas,
        }
        for part, ask in asked.items():
            self._tasks.append(asyncio.create_task(self._keep(part, PERIODS_S[part], ask)))
        for part, (period_s, ask) in others.items():
            self._tasks.append(asyncio.create_task(self._keep(part, period_s, ask)))
        if self._logs is not None:
            self._tasks.append(asyncio.create_task(self._follow(self._logs)))

    async def close(self) -> None:
        """Stop sending requests, and close all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.admin.view.close()

    async def changed(self, timeout_s: float) -> None:
        """Wait for new facts, for a failed request or for a call of `tell`, at most the timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    async def min_insync(self, topic: str) -> int:
        """Return min.insync.replicas of a topic, and request it if it is older than 10 s.

        If the request fails, return the older value, or 1 without one.
        """
        asked_ms = _now_ms()
        known = self.facts.min_insync.get(topic)
        if known is None or asked_ms - self.facts.min_insync_ms[topic] > MIN_INSYNC_EVERY_MS:
            try:
                configs = await self.admin.describe_configs(topic)
            except KafkaError:
                return known or 1
            named = {c.name: c.value for c in configs}
            known = int(named.get("min.insync.replicas") or 1)
            values, times = self.facts.min_insync, self.facts.min_insync_ms
            self.facts = replace(
                self.facts,
                min_insync={**dict(list(values.items())[-100:]), topic: known},
                min_insync_ms={**dict(list(times.items())[-100:]), topic: asked_ms},
            )
        return known

    # --- one part after the other

    async def _keep(
        self, part: str, period_s: float, ask: Callable[[], Awaitable[Changes]]
    ) -> None:
        while True:
            began_s, began_ms = time.monotonic(), _now_ms()
            pause_s = period_s
            try:
                self._take(part, await ask(), began_ms)
            except (UnsupportedVersion, ClusterAuthorizationFailed) as problem:
                sentence = f"This cluster does not report {WORDS.get(part, part)}: {problem}"
                not_exposed = {**self.facts.not_exposed, part: sentence}
                silent = {name: why for name, why in self.facts.silent.items() if name != part}
                self.facts = replace(self.facts, not_exposed=not_exposed, silent=silent)
                self.tell()
                pause_s = REFUSED_AGAIN_S
            except (KafkaError, Failure, OSError) as problem:
                silent = {**self.facts.silent, part: str(problem)}
                self.facts = replace(self.facts, silent=silent)
                self.tell()
            await asyncio.sleep(max(pause_s - (time.monotonic() - began_s), pause_s / 4))

    def _take(self, part: str, found: Changes, began_ms: int) -> None:
        """Store the facts of a part, which are as recent as `began_ms` or more recent."""
        at_ms = _now_ms()
        before = self.facts
        silent = {name: why for name, why in before.silent.items() if name != part}
        hidden = {name: why for name, why in before.not_exposed.items() if name != part}
        as_of_ms = {**before.as_of_ms, part: began_ms}
        after = replace(before, as_of_ms=as_of_ms, silent=silent, not_exposed=hidden, **found)
        if self._logs is None or part == "nodes":
            self._events.extend(changes(part, before, after, at_ms))
        if part == "nodes":
            self._written += rise(before, after, "messages_in")
            self._read += rise(before, after, "bytes_out")
        if part == "offsets":
            self._samples.append(self._sample(after, at_ms))
        self.facts = replace(after, events=tuple(self._events), samples=tuple(self._samples))
        self.tell()

    def _sample(self, facts: ClusterFacts, at_ms: int) -> ClusterSample:
        is_own = facts.internal_topics
        counted = {key: each for key, each in facts.offsets.items() if key[0] not in is_own}
        # A partition without a leader has no answer now, but its last known values still hold.
        ends = {key: end for key, end in self._ends.items() if key in facts.partitions}
        ends |= {key: each.high_watermark or 0 for key, each in counted.items()}
        self._ends = ends
        lags = [
            max(0, ends[key] - offset)
            for group in facts.groups.values()
            for key, offset in group.committed.items()
            if key in ends
        ]
        told = [node.traffic for node in facts.nodes.values() if node.traffic]
        of_brokers: dict[str, Any] = {}
        if told:
            of_brokers = {
                "counted_ms": facts.as_of_ms["nodes"],
                "messages_in": self._written,
                "bytes_out": self._read,
                "produce_ms": max(each.get("produce_p99_ms", 0) for each in told),
                "fetch_ms": max(each.get("fetch_p50_ms", 0) for each in told),
            }
        return ClusterSample(
            at_ms,
            sum(ends.values()),
            sum(each.held_back for each in counted.values()),
            sum(each.state in OPEN_STATES for each in facts.transactions.values()),
            sum(lags) if lags else None,
            **of_brokers,
        )

    async def _follow(self, logs: EventLogs) -> None:
        while True:
            if found := await asyncio.to_thread(logs.new):
                self._events.extend(map(cluster_event, found))
                self.facts = replace(self.facts, events=tuple(self._events))
                self.tell()
            else:
                await asyncio.sleep(LOGS_EVERY_S)

    def tell(self) -> None:
        """Wake all callers that wait in `changed`."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _cluster(self) -> Changes:
        cluster = await self.admin.describe_cluster()
        listed = await self.admin.describe_topics()
        try:
            controller = await self.admin.controller()
        except UnsupportedVersion:
            controller = cluster.controller_id
        connections = self.admin.view.open_connections()
        return {
            "cluster": cluster,
            "controller": controller,
            "partitions": {(p.topic, p.partition): p for p in listed},
            "internal_topics": frozenset(self.admin.view.snapshot.internal_topics),
            "answer_ms": _answer_times(cluster.brokers, connections),
        }

    async def _offsets(self) -> Changes:
        led = await self._led()
        ends = await self.admin.list_offsets(dict.fromkeys(led, LATEST))
        stable = await self.admin.list_offsets(dict.fromkeys(led, LATEST), read_committed=True)
        return {
            "offsets": {
                # requested one after the other, so an end may be newer than a stable offset
                key: ObservedOffsets(min(stable[key], ends[key]), ends[key])
                for key in led
            }
        }

    async def _log_starts(self) -> Changes:
        led = await self._led()
        return {"log_starts": await self.admin.list_offsets(dict.fromkeys(led, EARLIEST))}

    async def _led(self) -> list[TopicPartition]:
        while "cluster" not in self.facts.as_of_ms:
            await self.changed(1.0)
            if "cluster" in self.facts.silent and "cluster" not in self.facts.as_of_ms:
                await asyncio.sleep(0.5)
        return [key for key, p in self.facts.partitions.items() if p.leader >= 0]

    async def _transactions(self) -> Changes:
        admin = self.admin.transactions
        listed = await admin.list_transactions(needs_all_brokers=False)
        by_importance = sorted(listed, key=lambda each: each.state not in OPEN_STATES)
        described = await admin.describe_listed(by_importance[:DESCRIBED_MAX])
        behind = [key for key, each in self.facts.offsets.items() if each.held_back]
        found = await self._holders(behind, described.values())
        return {"transactions": described, "holders": found}

    async def _holders(
        self,
        keys: list[TopicPartition],
        described: Iterable[DescribedTransaction],
    ) -> dict[TopicPartition, tuple[PartitionTransaction, ...]]:
        """Return the open transactions of each of the partitions, sorted by first offset.

        `described` are the known transactional ids. A partition without an open transaction is left
        out.
        """
        if not keys:
            return {}
        known = {each.producer_id: each for each in described}
        producers = await self.admin.transactions.producers(keys)
        found: dict[TopicPartition, tuple[PartitionTransaction, ...]] = {}
        doubtful: list[TopicPartition] = []
        for key, each in producers.items():
            opened = sorted((p for p in each if p.is_open), key=lambda p: p.first_offset)
            found[key] = tuple(PartitionTransaction(p, known.get(p.producer_id)) for p in opened)
            if any(not each.is_known(key) for each in found[key]):
                doubtful.append(key)
        # described before they were found, so only a later state tells whether they hang
        if doubtful:
            found |= await without_ended(self.admin, await holders(self.admin, doubtful))
        return {key: each for key, each in found.items() if each}

    async def _groups(self) -> Changes:
        listed = await self.admin.groups.list_groups(needs_all_brokers=False)
        found = await self.admin.groups.describe_listed(listed)
        known = self.facts.groups.items()
        kept = {name: each for name, each in known if each.coordinator in listed.errors}
        return {
            "groups": kept
            | {
                each.group_id: ObservedGroup(
                    name=each.group_id,
                    coordinator=each.coordinator,
                    state=described.state if (described := found[each.group_id][0]) else each.state,
                    type=each.type or (described.type if described else ""),
                    described=described,
                    committed=found[each.group_id][1],
                )
                for each in listed
            }
        }

    async def _replicas(self) -> Changes:
        replicas: dict[TopicPartition, list[Any]] = {}
        for entry in await self.admin.describe_log_dirs():
            replicas.setdefault((entry.topic, entry.partition), []).append(entry)
        return {"replicas": {key: tuple(each) for key, each in replicas.items()}}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _answer_times(brokers: Iterable[Any], connections: Mapping[Any, Any]) -> dict[int, float]:
    """Return by node id how many ms the newest answer of a broker took."""
    found: dict[int, float] = {}
    for broker in brokers:
        known = connections.get((broker.host, broker.port))
        if isinstance(known, PacedConnection) and known.answer_ms is not None:
            found[broker.node_id] = known.answer_ms
    return found
