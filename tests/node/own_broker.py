"""A whole broker in this process, alone in its cluster.

A test may hold the jobs of its thread for data directories, and of its thread for the journal.
"""

import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from oncelog.coordinator.metadata.commands import (
    CreateTopics,
    DeleteTopics,
    FenceBroker,
    NewTopic,
    TopicReference,
    UnfenceBroker,
    encode_command,
)
from oncelog.coordinator.metadata.results import Result
from oncelog.node.broker import Broker
from oncelog.node.config.broker_config import BrokerConfig
from oncelog.node.environment import Surroundings
from oncelog.storage.partition_log import PartitionLog
from oncelog.wire.record_batch import decode_header

from ..awaiting import until
from .leading_broker import plain

TIMEOUT_S = 20


class HeldExecutor(ThreadPoolExecutor):
    """An executor with one thread. Its jobs wait after a call of `hold`."""

    def __init__(self) -> None:
        super().__init__(1)
        self._may_run = threading.Event()
        self._may_run.set()
        self.is_entered = threading.Event()  # a job waits, or has run

    def hold(self) -> None:
        self.is_entered.clear()
        self._may_run.clear()

    def release(self) -> None:
        self._may_run.set()

    def submit(self, job: Callable[..., Any], /, *args: Any, **keywords: Any) -> "Future[Any]":
        def held() -> Any:
            self.is_entered.set()
            assert self._may_run.wait(TIMEOUT_S)
            return job(*args, **keywords)

        return super().submit(held)


class OwnBroker(Broker):
    """Node 1, the only voter, with its data in `root/data`."""

    def __init__(
        self,
        root: Path,
        *,
        cluster_id: str = "c",
        settings: Mapping[str, str] = MappingProxyType({}),
        **surroundings: Any,
    ) -> None:
        self.directories, self.journal = HeldExecutor(), HeldExecutor()
        self.root = root
        config = BrokerConfig.from_properties(
            {
                "node.id": "1",
                "cluster.id": cluster_id,
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(root / "data"),
                "oncelog.voters": "1",
                "oncelog.peer.directory": tempfile.mkdtemp(prefix="oncelog-", dir=root),
                **settings,
            }
        )
        super().__init__(config, surroundings=Surroundings(executor=self._executor, **surroundings))

    def _executor(self, threads: int, name: str) -> Executor:
        held = {"directories": self.directories, "raft-journal": self.journal}
        return held.get(name) or ThreadPoolExecutor(threads, name)

    async def create(
        self, name: str, partitions: int = 2, *, topic_id: bytes | None = None
    ) -> Result:
        topic = NewTopic(name, topic_id or name.encode().ljust(16), partitions, 1)
        result = await self._controller.submit(CreateTopics((topic,)), timeout_ms=20_000)
        assert [item.error for item in result.items] == [0]
        return result

    async def delete(self, name: str) -> None:
        command = DeleteTopics((TopicReference(name),))
        result = await self._controller.submit(command, timeout_ms=20_000)
        assert [item.error for item in result.items] == [0]

    async def fence(self) -> None:
        """Fence the broker, and stop its heartbeats, since a heartbeat would unfence it."""
        await self.liveness.stop()
        await self.metadata_group.submit(encode_command(FenceBroker(1, self.liveness.broker_epoch)))

    async def unfence(self) -> None:
        await self.metadata_group.submit(
            encode_command(UnfenceBroker(1, self.liveness.broker_epoch))
        )

    async def snapshot(self) -> None:
        """Let the metadata group write a snapshot of its state, and wait for it."""
        before = self.engine.disk.read_snapshot(0)
        self.metadata_group._applier.make_snapshot()
        await until(lambda: self.engine.disk.read_snapshot(0) != before)

    def serves(self, name: str, partitions: int = 2) -> bool:
        hosted = (self.replicas.get(name, index) for index in range(partitions))
        return all(one is not None and one.leader is not None for one in hosted)

    def append(self, name: str, index: int = 0) -> PartitionLog:
        """Append a batch as its leader, and return the log."""
        data = memoryview(plain(0))
        hosted = self.replicas.partition(name, index)
        self.replicas.append(hosted, data, decode_header(data), 1)
        return hosted.log

    def directories_of(self, name: str) -> list[str]:
        return sorted(path.name for path in (self.root / "data").glob(f"{name}-*"))


@asynccontextmanager
async def running(root: Path, **surroundings: Any) -> AsyncIterator[OwnBroker]:
    """Yield a broker that serves, and stop it afterwards."""
    broker = OwnBroker(root, **surroundings)
    await broker.start()
    try:
        yield broker
    finally:
        broker.directories.release()
        await broker.stop()


def as_killed(broker: OwnBroker, root: Path) -> Path:
    """Copy the data directory as a `kill -9` would leave it now, and return the copy's root."""
    while True:
        try:
            shutil.copytree(broker.root / "data", root / "data")
            return root
        except shutil.Error:  # a file was replaced meanwhile: the copy would be of two moments
            shutil.rmtree(root / "data")
