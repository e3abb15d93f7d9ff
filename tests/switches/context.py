"""The context of a directed scenario, with its cluster, its requests, and the recorded history."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from oncelog.client.admin import LATEST, Admin
from oncelog.client.cluster_view import PartitionInfo
from oncelog.client.connection import BrokerConnection
from oncelog.proof.chaos.load.payloads import value_of
from oncelog.proof.chaos.load.settings import LoadSettings
from oncelog.proof.judge.history.columns import History
from oncelog.proof.judge.history.recorder import Recorder
from oncelog.proof.judge.history.schema import OpOutcome
from oncelog.proof.judge.logs.scan import scan_topics
from oncelog.proof.judge.verdict import Verdict, judge
from oncelog.wire.errors import KafkaError

from .clusters import ScenarioCluster

T = TypeVar("T")
TIMEOUT_S, MARKERS_S = 30.0, 8.0


class LateRequest:
    """A request on its own connection that arrives late, because the test sends it late.

    A broker cannot distinguish this from a request that the network has delayed.
    """

    def __init__(
        self, connection: BrokerConnection, api_key: int, version: int, body: bytes
    ) -> None:
        self._connection = connection
        self._request = api_key, version, [body]

    async def arrive(self) -> None:
        """Send the request, and wait until it is answered or its connection is closed."""
        with contextlib.suppress(KafkaError):
            await self._connection.send(*self._request)
        self._connection.close()


class Context:
    """The operations that a scenario may use, on its cluster and in the recorded history."""

    def __init__(self, cluster: ScenarioCluster, recorder: Recorder) -> None:
        self.cluster, self.recorder = cluster, recorder
        self.settings = LoadSettings(patience_ms=15_000, transaction_timeout_ms=60_000)
        self.admin = Admin(cluster.bootstrap)
        self.topics: list[str] = []
        self.dumps = False
        self._connections: dict[tuple[int, str], BrokerConnection] = {}

    async def topic(self, name: str, partitions: int = 1, **configs: str) -> str:
        """Create a topic, and wait until all replicas are in sync and the leaders serve."""
        await self.admin.create_topic(
            name,
            partitions=partitions,
            replication_factor=min(3, len(self.cluster.node_ids)),
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        self.topics.append(name)
        await self.until_whole([name])
        for partition in range(partitions):
            await self.log_end(name, partition)  # asked again until the leader has its log open
        return name

    async def leader(self, topic: str, partition: int = 0) -> int:
        """Return the node that leads a partition, or raise AssertionError without a leader."""
        for each in await self.admin.describe_topics([topic]):
            if each.partition == partition and each.leader >= 0:
                return each.leader
        raise AssertionError(f"{topic}/{partition} has no leader")

    async def log_end(self, topic: str, partition: int = 0) -> int:
        return (await self.admin.list_offsets({(topic, partition): LATEST}))[topic, partition]

    async def connection(self, node_id: int, channel: str = "") -> BrokerConnection:
        """Return an open connection to a node, the same one for each call with the same channel."""
        known = self._connections.get((node_id, channel))
        if known is None or not known.is_open:
            host, port = self.cluster.address(node_id)
            known = self._connections[node_id, channel] = await BrokerConnection.open(host, port)
        return known

    async def late_request(
        self, node_id: int, api_key: int, version: int, body: bytes
    ) -> LateRequest:
        connection = await BrokerConnection.open(*self.cluster.address(node_id))
        return LateRequest(connection, api_key, version, body)

    async def probe(self, kind: str, topic: str, is_ok: bool, error: str | None = None) -> None:
        """Record a probe, an operation at the topic's leader that must succeed after faults."""
        now = self.recorder.now_ns()
        outcome = OpOutcome.OK if is_ok else OpOutcome.FAIL
        self.recorder.add("probes", kind, await self.leader(topic), now, now, outcome, error)

    async def until(
        self, ask: Callable[[], Awaitable[T]], holds: Callable[[T], bool], what: str
    ) -> None:
        """Repeat a request, also after errors, until `holds` accepts its answer.

        Raises AssertionError with `what` after TIMEOUT_S.
        """
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                if holds(await ask()):
                    return
            except KafkaError as problem:
                what = f"{what} ({problem})" if "(" not in what else what
            assert time.monotonic() < deadline, f"waited for {TIMEOUT_S} s: {what}"
            await asyncio.sleep(0.02)

    async def until_whole(self, topics: Iterable[str]) -> None:
        """Wait until all partitions have leaders and all their replicas are in sync."""
        names = list(topics)

        def is_whole(found: Sequence[PartitionInfo]) -> bool:
            return bool(found) and all(
                p.leader >= 0 and len(p.isr) == len(p.replicas) for p in found
            )

        ask = partial(self.admin.describe_topics, names)
        await self.until(ask, is_whole, f"all replicas of {names} in sync")

    async def verdict(self) -> Verdict:
        """End all faults, read all topics, and return the judge's verdict on the history."""
        await self.cluster.heal()
        await self.until_whole(self.topics)
        await self._until_readable()
        await scan_topics(
            self.cluster.bootstrap, self.topics, self.recorder, lambda r: value_of(r.value)
        )
        await self.close()
        if self.dumps:
            await self.cluster.dump(self.recorder)
        return judge(History.of(self.recorder))

    async def _until_readable(self) -> None:
        """Wait until no partition has an open transaction, at most MARKERS_S seconds."""
        deadline = time.monotonic() + MARKERS_S
        while time.monotonic() < deadline:
            keys = [(p.topic, p.partition) for p in await self.admin.describe_topics(self.topics)]
            wanted = dict.fromkeys(keys, LATEST)
            ends = await self.admin.list_offsets(wanted)
            if ends == await self.admin.list_offsets(wanted, read_committed=True):
                return
            await asyncio.sleep(0.05)

    async def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        await self.admin.close()


Scenario = Callable[[Context], Coroutine[Any, Any, None]]
