"""Where a directed scenario plays: a cluster whose nodes can be struck, and the play's history.

A scenario is a coroutine that knows this class and nothing of processes: `ClusterOnStage` is what a
stage needs of a cluster.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Protocol

from oncelog.client.admin import LATEST, Admin
from oncelog.client.connection import Connection
from oncelog.deploy.chaos.load.payloads import value_of
from oncelog.deploy.chaos.load.settings import LoadSettings
from oncelog.deploy.judge.history.columns import History
from oncelog.deploy.judge.history.recorder import Recorder
from oncelog.deploy.judge.history.schema import Outcome
from oncelog.deploy.judge.logs.scan import scan_topics
from oncelog.deploy.judge.verdict import Verdict, judge
from oncelog.wire.errors import KafkaError

PATIENCE_S, MARKERS_S = 30.0, 8.0
EPOCH_BYTE = 19  # of a producer snapshot: the low byte of its first producer's epoch


class ClusterOnStage(Protocol):
    """What can be asked of a cluster and done to it; every fault is proved when it returns."""

    bootstrap: str
    node_ids: list[int]

    def address(self, node_id: int) -> tuple[str, int]: ...
    async def kill(self, node_id: int) -> None: ...
    async def stop(self, node_id: int) -> None: ...
    async def start(self, node_id: int) -> None: ...
    async def cut_power(self) -> None: ...
    async def cut_off(self, node_id: int) -> None: ...
    async def heal(self) -> None: ...
    async def hold_request(
        self, node_id: int, api_key: int, version: int, body: bytes
    ) -> "Held": ...
    def flip_snapshots(self, node_id: int, topic: str, partition: int) -> int: ...
    async def dump(self, recorder: Recorder) -> None: ...


class Held(Protocol):
    """A request that is on its way, on a connection of its own, and does not arrive yet.

    is_over: it was answered, or its connection was closed.
    """

    async def arrive(self) -> None: ...
    def is_over(self) -> bool: ...
    def close(self) -> None: ...


class Stage:
    def __init__(self, cluster: ClusterOnStage, recorder: Recorder) -> None:
        self.cluster, self.recorder = cluster, recorder
        self.settings = LoadSettings(patience_ms=15_000, transaction_timeout_ms=60_000)
        self.admin = Admin(cluster.bootstrap)
        self.topics: list[str] = []
        self.dumps = False
        self._connections: dict[tuple[int, str], Connection] = {}

    async def topic(self, name: str, partitions: int = 1, **configs: str) -> str:
        """A topic whose replicas are all in sync, and whose leaders serve."""
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
        """The node that leads a partition."""
        for each in await self.admin.describe_topics([topic]):
            if each.partition == partition and each.leader >= 0:
                return each.leader
        raise AssertionError(f"{topic}/{partition} has no leader")

    async def log_end(self, topic: str, partition: int = 0) -> int:
        return (await self.admin.list_offsets({(topic, partition): LATEST}))[topic, partition]

    async def connection(self, node_id: int, channel: str = "") -> Connection:
        """A connection to a node, kept; each channel has its own."""
        known = self._connections.get((node_id, channel))
        if known is None or not known.is_open:
            host, port = self.cluster.address(node_id)
            known = self._connections[node_id, channel] = await Connection.open(host, port)
        return known

    async def probe(self, kind: str, topic: str, is_ok: bool, error: str | None = None) -> None:
        """Something that has to succeed, of the leader of a topic."""
        now = self.recorder.now_ns()
        outcome = Outcome.OK if is_ok else Outcome.FAIL
        self.recorder.add("probes", kind, await self.leader(topic), now, now, outcome, error)

    async def until(self, condition: Any, what: str) -> None:
        """Return when the coroutine function `condition` says yes; errors of the way are borne."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if await condition():
                    return
            except KafkaError as problem:
                what = f"{what} ({problem})" if "(" not in what else what
            assert time.monotonic() < deadline, f"waited for {PATIENCE_S} s: {what}"
            await asyncio.sleep(0.02)

    async def until_whole(self, topics: Iterable[str]) -> None:
        """All partitions have leaders and all replicas are in sync."""
        names = list(topics)

        async def is_whole() -> bool:
            found = await self.admin.describe_topics(names)
            return bool(found) and all(
                p.leader >= 0 and len(p.isr) == len(p.replicas) for p in found
            )

        await self.until(is_whole, f"all replicas of {names} in sync")

    async def verdict(self) -> Verdict:
        """Mend everything, read everything once more, and judge."""
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
        """Markers are written everywhere, or have had long enough: then that is for the judge."""
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


async def answer(connection: Connection, api_key: int, version: int, body: bytes) -> object:
    """The answer of a request; None when its connection was closed instead."""
    try:
        return await connection.send(api_key, version, [body])
    except KafkaError:
        return None


def flip_epochs(folder: Path) -> int:
    """Flip a bit in each producer snapshot of a partition that is at rest; how many there were."""
    flipped = 0
    for file in folder.glob("*.snapshot"):
        content = bytearray(file.read_bytes())
        if len(content) > EPOCH_BYTE:
            content[EPOCH_BYTE] ^= 1
            file.write_bytes(content)
            flipped += 1
    return flipped


Scenario = Callable[[Stage], Coroutine[Any, Any, None]]
