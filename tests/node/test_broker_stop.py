"""Test that a broker which stops reports disk errors, and writes its files in the right order."""

import asyncio
import errno
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from oncelog.storage.checkpoint import LOG_START_OFFSETS, OffsetCheckpoint
from oncelog.storage.directory.log_directory import CLEAN_SHUTDOWN
from oncelog.storage.local_log import LocalLog
from oncelog.storage.log_flushing import LogFlushing
from oncelog.storage.partition_log import PartitionLog
from oncelog.wire.errors import KafkaStorageError

from ..awaiting import until
from .own_broker import OwnBroker

SLOW_S = 2


async def with_a_batch(root: Path) -> tuple[OwnBroker, PartitionLog]:
    """Return a broker with the topic `a`, and its log with one batch."""
    broker = OwnBroker(root)
    await broker.start()
    await broker.create("a")
    await until(lambda: broker.serves("a"))
    return broker, broker.append("a")


@pytest.mark.parametrize(("part", "step"), [(LogFlushing, "flush"), (LocalLog, "take_snapshot")])
async def test_broker_stop_with_a_failing_disk_reports_the_disk_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: type, step: str
) -> None:
    """Without a report the stop would seem clean, but the next start recovers the logs."""
    broker, log = await with_a_batch(tmp_path)
    works = getattr(part, step)

    def refused(self: Any, **options: bool) -> None:
        with log.local.disk:
            if self in (log.local, log.flushing):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        works(self, **options)

    monkeypatch.setattr(part, step, refused)
    with pytest.raises(KafkaStorageError, match="a-0 failed on disk"):
        await broker.stop()
    assert not (tmp_path / "data" / CLEAN_SHUTDOWN).exists()


async def test_broker_stop_does_not_report_a_log_that_failed_long_before(tmp_path: Path) -> None:
    broker, log = await with_a_batch(tmp_path)
    log.local.retire("broken")
    await broker.stop()
    assert not (tmp_path / "data" / CLEAN_SHUTDOWN).exists()


async def test_broker_stop_during_a_checkpoint_write_keeps_the_newer_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older checkpoint would restore records that DeleteRecords has deleted."""
    mark = tmp_path / "data" / CLEAN_SHUTDOWN
    is_entered = threading.Event()
    write = OffsetCheckpoint.write

    def slow_at_first(self: OffsetCheckpoint, offsets: Mapping[tuple[str, int], int]) -> None:
        if not is_entered.is_set():
            is_entered.set()
            deadline = time.monotonic() + SLOW_S
            while time.monotonic() < deadline and not mark.exists():
                time.sleep(0.005)
        write(self, offsets)

    broker, log = await with_a_batch(tmp_path)
    directory, name = broker.directory, LOG_START_OFFSETS
    monkeypatch.setattr(OffsetCheckpoint, "write", slow_at_first)
    asyncio.get_running_loop().run_in_executor(
        broker.directories, directory.write_offsets, name, dict.fromkeys(directory.logs, 0)
    )
    await until(is_entered.is_set)
    log.retention.advance_log_start_offset(log.high_watermark)
    assert log.log_start_offset > 0
    await broker.stop()
    assert OffsetCheckpoint(directory.path / name).read()["a", 0] == log.log_start_offset
    assert mark.exists()
