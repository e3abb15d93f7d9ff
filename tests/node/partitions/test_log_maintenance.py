"""Test the background work for logs (checkpoints, retention, deletion) with failing disks."""

import asyncio
import errno
import itertools
import logging
import os
import struct
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.node.partitions import log_maintenance
from oncelog.runtime.sliced_work import SlicedWork
from oncelog.storage.checkpoint import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    OffsetCheckpoint,
)
from oncelog.storage.log_config import LogConfig
from oncelog.storage.segments.index import CorruptIndex
from oncelog.storage.segments.retention import SEGMENTS_AT_ONCE
from oncelog.wire.errors import CorruptMessage, KafkaStorageError, OffsetOutOfRange
from oncelog.wire.records import Record, encode_batch

from ...awaiting import turns_until, until
from ...log_batches import append_as_leader
from ...log_directories import delete_partition, open_partition
from ..hosted_logs import TOPIC_ID, data_directory, maintaining
from ..leading_broker import LeadingBroker


async def test_log_maintenance_on_a_full_disk_logs_each_failed_work_once_and_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk refuses at least ten checkpoint writes and renames. Afterwards all work is done."""
    failures, is_full = 0, False

    def fault_point(name: str) -> None:
        nonlocal failures
        if is_full and name in ("checkpoint.before-fsync", "directory.before-rename"):
            failures += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(log_maintenance, "PURGE_MS", 10)
    caplog.set_level(logging.ERROR)
    directory = data_directory(tmp_path, fault_point=fault_point)
    is_full = True
    intervals = {
        "replica_high_watermark_checkpoint_interval_ms": 10,
        "log_flush_offset_checkpoint_interval_ms": 30,
    }
    for topic in "tu":
        open_partition(directory, topic, 0, TOPIC_ID, LogConfig(), 0)
    async with maintaining(LeadingBroker(tmp_path).replicas, directory, **intervals):
        delete_partition(directory, "u", 0)
        await until(lambda: failures >= 10)
        is_full = False
        await until(lambda: not list(directory.path.glob("u-0*")))
        checkpoint = OffsetCheckpoint(directory.path / HIGH_WATERMARKS)
        await until(lambda: checkpoint.read() == {("t", 0): 0})
        await until((directory.path / RECOVERY_POINTS).exists)
        assert not (directory.path / LOG_START_OFFSETS).exists(), "each has its own interval"
    logged = [record for record in caplog.records if "will be retried" in record.message]
    assert 1 <= len(logged) <= 3, "once for each checkpoint, once for the deletion"


async def test_log_maintenance_deletes_many_segments_in_several_turns(
    tmp_path: Path,
) -> None:
    """To delete 2,000 segments of a topic in one turn would block the loop for 500 ms."""
    broker = LeadingBroker(tmp_path, log_config={"segment_bytes": 200, "retention_ms": 1})
    broker.replicas.work = SlicedWork(itertools.count(0, 0.003).__next__)  # a step a turn
    log = broker.log()
    for _ in range(60):
        append_as_leader(log, encode_batch([Record(0, 1, None, b"v" * 100)]), epoch=1)
    log.advance_high_watermark(log.log_end_offset)
    sizes: list[int] = []

    def look() -> bool:
        sizes.append(len(log.segments))
        return log.log_start_offset == log.log_end_offset

    intervals = {"log_retention_check_interval_ms": 10}
    async with maintaining(broker.replicas, data_directory(tmp_path), **intervals):
        await turns_until(look)
    steps = [before - after for before, after in itertools.pairwise(sizes)]
    assert max(steps) <= SEGMENTS_AT_ONCE


async def test_log_maintenance_of_thousands_of_logs_runs_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a start all 10,000 logs of a broker count as written, and one step would take 50 ms."""
    monkeypatch.setattr(log_maintenance, "LOGS_A_STEP", 10)
    broker = LeadingBroker(tmp_path, partitions=60)
    broker.replicas.work = SlicedWork(itertools.count(0, 0.003).__next__)  # a step a turn
    sizes = [0]

    def look() -> bool:
        sizes.append(len(maintenance._dirty))
        return sizes[-1] == 60

    async with maintaining(broker.replicas, data_directory(tmp_path)) as maintenance:
        broker.replicas.written.update(broker.replicas)
        await turns_until(look)
    assert max(after - before for before, after in itertools.pairwise(sizes)) <= 10


async def test_log_maintenance_keeps_no_removed_replica_in_memory(tmp_path: Path) -> None:
    """A deleted topic's logs are closed only after all references to them are gone."""
    broker = LeadingBroker(tmp_path, partitions=2)
    async with maintaining(broker.replicas, data_directory(tmp_path)) as maintenance:
        staying, leaving = broker.replicas
        for partition in (staying, leaving):
            append_as_leader(partition.log, encode_batch([Record(0, 1, None, b"v")]), epoch=1)
            broker.replicas.written.add(partition)
        await until(lambda: len(maintenance._dirty) == 2)
        broker.replicas.remove(leaving)
        await until(lambda: not broker.replicas.written)
        leaving.log.local.retire()
        assert list(maintenance._dirty) == [staying]
        assert maintenance._dirty_bytes == staying.log.flushing.unwritten_bytes


TROUBLES = [
    struct.error("unpack_from requires a buffer"),
    CorruptIndex("0.index", "it is short", "Delete it"),
    CorruptMessage("no batch: magic 7"),
    OffsetOutOfRange("the log start"),
    OSError(errno.EIO, "Input/output error"),
]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda error: type(error).__name__)
async def test_log_maintenance_continues_after_one_damaged_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, trouble: Exception
) -> None:
    """In an earlier version one damaged byte ended the broker, or all later maintenance."""
    caplog.set_level(logging.ERROR)
    config = {"segment_bytes": 200, "retention_ms": 1}
    broker = LeadingBroker(tmp_path, log_config=config, partitions=3)
    ended: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: ended.append(context))
    damaged, *logs = [partition.log for partition in broker.replicas]
    tried: Counter[str] = Counter()

    def failing(kind: str) -> Any:
        def steps(*_: Any) -> Any:
            tried[kind] += 1
            yield
            raise trouble

        return steps

    for log in logs:
        for _ in range(9):
            append_as_leader(log, encode_batch([Record(0, 1, None, b"v" * 100)]), epoch=1)
        log.advance_high_watermark(log.log_end_offset)
    for log in (damaged, *logs):
        log.local.snapshot_needed = True
    retention: Any = SimpleNamespace(deleting_old_segments=failing("retention"))
    damaged.retention = retention
    damaged.local.snapshotting = failing("snapshot")  # type: ignore[method-assign]
    mending: Any = failing("mending")
    damaged.aborted_transactions = SimpleNamespace(  # type: ignore[assignment]
        damaged=damaged.segments.active, mending=mending
    )
    intervals = {"log_retention_check_interval_ms": 10}
    async with maintaining(broker.replicas, data_directory(tmp_path), **intervals):
        await until(lambda: len(tried) == 3 and tried["retention"] > 1)
        await until(lambda: all(one.log_start_offset == one.log_end_offset for one in logs))
        await until(lambda: not any(one.local.snapshot_needed for one in logs))
        retention.has_deleted_files = False
    assert not ended and not damaged.is_failed
    assert str(trouble) in caplog.text


async def test_log_maintenance_continues_after_files_that_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = data_directory(tmp_path)
    config = LogConfig(segment_bytes=200, file_delete_delay_ms=0)
    logs = [open_partition(directory, topic, 0, TOPIC_ID, config, 0) for topic in "tuv"]
    for log in logs:
        for _ in range(9):
            append_as_leader(log, encode_batch([Record(0, 1, None, b"v" * 100)]), epoch=1)
        log.advance_high_watermark(5)
        log.retention.advance_log_start_offset(5)
        log.retention.delete_old_segments(0)
    delete_partition(directory, "v", 0)
    unlink = Path.unlink

    def unlink_others(self: Path, missing_ok: bool = False) -> None:
        if self.parent.name == "t-0":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        unlink(self, missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", unlink_others)
        with pytest.raises(KafkaStorageError, match="t-0"):
            directory.purge_deleted(1)
    assert not list(directory.path.glob("u-0/0*.deleted")) and not list(directory.path.glob("v-0*"))
    assert directory.purge_deleted(1) == 0 and not list(directory.path.glob("t-0/0*.deleted"))
    directory.release()
