"""How a broker begins: what it remembers of the cluster, and what has happened since."""

import asyncio
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.commands import CreateTopics, DeleteTopics, NewTopic, TopicReference
from oncelog.node.broker import Broker
from oncelog.node.config import BrokerConfig
from oncelog.storage.partition_log import PartitionLog


def config_of(root: Path, **settings: str) -> BrokerConfig:
    return BrokerConfig.from_properties(
        {
            "node.id": "1",
            "cluster.id": "c",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(root / "data"),
            "oncelog.voters": "1",
            "oncelog.peer.directory": tempfile.mkdtemp(prefix="oncelog-", dir=root),
            **settings,
        }
    )


async def create(broker: Broker, name: str, partitions: int = 2) -> None:
    topic = NewTopic(name, name.encode().ljust(16), partitions, 1)
    result = await broker._controller.submit(CreateTopics((topic,)), timeout_ms=10_000)
    assert [item.error for item in result.items] == [0]


async def delete(broker: Broker, name: str) -> None:
    topics = (TopicReference(name),)
    result = await broker._controller.submit(DeleteTopics(topics), timeout_ms=10_000)
    assert [item.error for item in result.items] == [0]


async def until(holds: Any, timeout_s: float = 20) -> None:
    async with asyncio.timeout(timeout_s):
        while not holds():
            await asyncio.sleep(0.005)


async def snapshot(broker: Broker) -> None:
    """Have a snapshot of the metadata written as it is now."""
    before = broker._engine.disk.read_snapshot(0)
    broker._group._applier.make_snapshot()
    await until(lambda: broker._engine.disk.read_snapshot(0) != before)


def as_killed(root: Path, now: Path) -> None:
    """What `kill -9` leaves of a broker that runs in `root`."""
    shutil.copytree(root / "data", now / "data")


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    found = tmp_path / "a", tmp_path / "b"
    for root in found:
        root.mkdir()
    return found


def test_a_topic_of_the_snapshot_that_the_log_deletes_does_not_stop_the_start(
    roots: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logs are opened in an executor; the loop applies the deletion in the middle of that."""

    async def run() -> None:
        first, second = roots
        broker = Broker(config_of(first))
        await broker.start()
        await create(broker, "a")
        await create(broker, "b")
        await snapshot(broker)
        await delete(broker, "b")
        as_killed(first, second)
        await broker.stop()
        # Its directory as a kill between the decision and the rename leaves it.
        for partition in (second / "data").glob("b-*-delete"):
            partition.rename(second / "data" / partition.name.partition(".")[0])

        again = Broker(config_of(second))
        in_executor: list[str] = []
        open_log = PartitionLog.open.__func__  # type: ignore[attr-defined]

        def opened_slowly(
            cls: type[PartitionLog], directory: Path, **keywords: Any
        ) -> PartitionLog:
            if threading.current_thread() is not threading.main_thread():
                in_executor.append(directory.name)
                applied = threading.Event()
                again.state.on_change(lambda changes: changes.topics_deleted and applied.set())
                assert "b" not in again.state.topics or applied.wait(20)
            return open_log(cls, directory, **keywords)

        monkeypatch.setattr(PartitionLog, "open", classmethod(opened_slowly))
        await again.start()
        assert in_executor == ["a-0", "a-1", "b-0", "b-1"]
        assert sorted(again.state.topics) == ["a"]
        assert sorted(again._directory.logs) == [("a", 0), ("a", 1)]
        await again.stop()

    asyncio.run(run())
