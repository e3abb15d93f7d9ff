"""Test a broker that starts with an old metadata snapshot and newer data directories."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from oncelog.storage.checkpoint import PartitionMetadata
from oncelog.storage.partition_log import PartitionLog

from ..awaiting import until
from .own_broker import OwnBroker, as_killed, running

NEW_ID = b"another topic id"


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    found = tmp_path / "a", tmp_path / "b"
    for root in found:
        root.mkdir()
    return found


async def test_topic_deleted_after_the_snapshot_is_removed_without_being_opened(
    roots: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node was down, or had not yet removed the log, when the topic was deleted."""
    async with running(roots[0]) as broker:
        await broker.create("a")
        await broker.create("b")
        await broker.snapshot()
        broker.directories.hold()
        await broker.delete("b")
        as_killed(broker, roots[1])
    opened = []
    open_log = PartitionLog.opening.__func__  # type: ignore[attr-defined]

    def noted(cls: type[PartitionLog], directory: Path, **keywords: Any) -> Any:
        opened.append(directory.name)
        return open_log(cls, directory, **keywords)

    monkeypatch.setattr(PartitionLog, "opening", classmethod(noted))
    async with running(roots[1]) as again:
        assert sorted(again.state.topics) == ["a"]
        assert opened == ["a-0", "a-1"]
        assert again.serves("a")
        assert all(name.endswith("-delete") for name in again.directories_of("b"))
        again.directory.purge_deleted(0)
        assert again.directories_of("b") == []


async def test_topic_recreated_after_the_snapshot_keeps_its_records(
    roots: tuple[Path, Path],
) -> None:
    """The snapshot still has the older topic of this name, with another id."""
    async with running(roots[0]) as broker:
        await broker.create("a")
        await broker.snapshot()
        await broker.delete("a")
        await broker.create("a", topic_id=NEW_ID)
        await until(lambda: broker.serves("a"))
        broker.append("a")
        as_killed(broker, roots[1])
    async with running(roots[1]) as again:
        hosted = again.replicas.partition("a", 0)
        assert (hosted.topic_id, hosted.log.log_end_offset) == (NEW_ID, 1)


async def test_log_directory_of_an_unknown_topic_is_set_aside(
    roots: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    async with running(roots[0]) as broker:
        await broker.create("a")
        await until(lambda: broker.serves("a"))
        as_killed(broker, roots[1])
    data = roots[1] / "data"
    for name, content in {"gone-7": NEW_ID, "nameless-0": None}.items():
        (data / name).mkdir()
        if content is not None:
            PartitionMetadata(content).write(data / name)
    (data / "a-1" / "partition.metadata").unlink()
    PartitionMetadata(NEW_ID).write(data / "a-1")
    with caplog.at_level(logging.WARNING, "oncelog.storage"):
        async with running(roots[1]) as again:
            assert again.serves("a")
            assert again.directory.found == set()
    assert sorted(path.name.partition(".")[0] for path in data.glob("*-stray")) == [
        "a-1",
        "gone-7",
        "nameless-0",
    ]
    assert "Delete it if its records are not needed" in caplog.text


async def test_cluster_id_is_created_once_by_the_first_leader(tmp_path: Path) -> None:
    """In an earlier version an idle node without cluster.id wrote 22 metadata entries a second."""
    names: set[str] = set()
    for _ in range(2):
        async with running(tmp_path, cluster_id="") as broker:
            index = broker.metadata_group.applied_index
            await asyncio.sleep(0.3)
            assert broker.metadata_group.applied_index == index
            names.add(broker.state.cluster_id)
    (name,) = names
    assert len(name) == 22


async def test_largest_replica_fetch_answer_fits_into_a_peer_message(
    roots: tuple[Path, Path],
) -> None:
    """An answer is one message with all its records. A message above the limit closes the link."""
    wanted = 500 * 1024 * 1024
    settings = {"replica.fetch.response.max.bytes": str(wanted)}
    broker = OwnBroker(roots[0], settings=settings)
    await broker.start()
    try:
        largest_batch = broker.config.socket_request_max_bytes
        assert broker.transport._max_message_bytes > wanted + largest_batch
    finally:
        await broker.stop()
