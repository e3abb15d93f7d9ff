"""The background work for logs: what the disk refuses is tried again."""

import asyncio
import errno
import itertools
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oncelog.node.partitions import log_maintenance
from oncelog.node.partitions.log_maintenance import LogMaintenance
from oncelog.replication.sliced_work import SlicedWork
from oncelog.storage.checkpoint import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    OffsetCheckpoint,
)
from oncelog.storage.directory.log_directory import LogDirectory
from oncelog.storage.log_config import LogConfig
from oncelog.storage.segments.retention import SEGMENTS_AT_ONCE
from oncelog.wire.record_batch import decode_header
from oncelog.wire.records import Record, encode_batch

from ..hosted_logs import TOPIC_ID, data_directory, maintenance_intervals
from ..leading_broker import LeadingBroker

WAIT_S = 10


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.005)


def test_a_full_disk_is_said_once_and_forgiven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint finds no room ten times; then topics are deleted and checkpoints written."""
    failures = 0
    is_full = True

    def fault_point(name: str) -> None:
        nonlocal failures
        if is_full and name in ("checkpoint.before-fsync", "directory.before-rename"):
            failures += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(log_maintenance, "PURGE_MS", 10)
    caplog.set_level(logging.ERROR)

    async def run() -> None:
        nonlocal is_full
        directory = LogDirectory(
            tmp_path / "data",
            cluster_id="c",
            node_id=1,
            boot_id="b",
            new_directory_id=bytes(16),
            fault_point=lambda name: None if not started else fault_point(name),
        )
        started.append(True)
        broker = LeadingBroker(tmp_path)
        config = maintenance_intervals(
            replica_high_watermark_checkpoint_interval_ms=10,
            log_flush_offset_checkpoint_interval_ms=30,
        )
        directory.open_partition("t", 0, TOPIC_ID, LogConfig(), 0)
        directory.open_partition("u", 0, TOPIC_ID, LogConfig(), 0)
        with ThreadPoolExecutor(1) as executor:
            maintenance = LogMaintenance(broker.replicas, directory, config, executor, executor)
            directory.delete_partition("u", 0)
            await until(lambda: failures >= 10)
            is_full = False
            await until(lambda: not list(directory.path.glob("u-0*")))
            checkpoint = OffsetCheckpoint(directory.path / HIGH_WATERMARKS)
            await until(lambda: checkpoint.read() == {("t", 0): 0})
            await until((directory.path / RECOVERY_POINTS).exists)
            assert not (directory.path / LOG_START_OFFSETS).exists(), "each has its own interval"
            await maintenance.stop()
        directory.release()

    started: list[bool] = []
    asyncio.run(run())
    said = [record for record in caplog.records if "tried again" in record.message]
    assert 1 <= len(said) <= 3, "once for each checkpoint, once for the deletion"


def test_others_have_turns_while_retention_takes_many_segments(tmp_path: Path) -> None:
    """An operator empties a topic by retention.ms: 2,000 segments kept a loop for 500 ms."""

    async def run() -> int:
        directory = data_directory(tmp_path)
        broker = LeadingBroker(tmp_path, log_config={"segment_bytes": 200, "retention_ms": 1})
        broker.replicas.work = SlicedWork(itertools.count(0, 0.003).__next__)  # a step a turn
        log = broker.log()
        for _ in range(60):
            records = memoryview(
                bytearray(encode_batch([Record(0, 1, None, b"v" * 100)], base_offset=0))
            )
            log.append_as_leader(records, decode_header(records), leader_epoch=1, now_ms=1)
        log.advance_high_watermark(log.log_end_offset)
        config = maintenance_intervals(log_retention_check_interval_ms=10)
        sizes = []

        def look() -> bool:
            sizes.append(len(log.segments))
            return log.log_start_offset == log.log_end_offset

        with ThreadPoolExecutor(1) as executor:
            maintenance = LogMaintenance(broker.replicas, directory, config, executor, executor)
            async with asyncio.timeout(WAIT_S):
                while not look():
                    await asyncio.sleep(0)
            await maintenance.stop()
        directory.release()
        return max(before - after for before, after in itertools.pairwise(sizes))

    assert asyncio.run(run()) <= SEGMENTS_AT_ONCE


async def test_a_replica_that_left_is_not_held_on_to(tmp_path: Path) -> None:
    """Of a topic of many partitions each log is retired in its turn, and was looked at before."""
    directory = data_directory(tmp_path)
    broker = LeadingBroker(tmp_path, partitions=2)
    config = maintenance_intervals()
    with ThreadPoolExecutor(1) as executor:
        maintenance = LogMaintenance(broker.replicas, directory, config, executor, executor)
        staying, leaving = broker.replicas
        for partition in (staying, leaving):
            records = memoryview(bytearray(encode_batch([Record(0, 1, None, b"v")])))
            header = decode_header(records)
            partition.log.append_as_leader(records, header, leader_epoch=1, now_ms=1)
            broker.replicas.written.add(partition)
        await until(lambda: len(maintenance._dirty) == 2)
        broker.replicas.remove(leaving)
        await until(lambda: not broker.replicas.written)
        leaving.log.retire()
        assert list(maintenance._dirty) == [staying]
        assert maintenance._dirty_bytes == staying.log.unwritten_bytes
        await maintenance.stop()
    directory.release()
