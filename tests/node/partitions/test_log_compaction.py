"""Test the background compaction of a broker's logs, also on a full or failing disk."""

import asyncio
import errno
import os
import weakref
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.node.clock import SystemClock
from oncelog.node.partitions.checkpoint_writer import CheckpointWriter
from oncelog.node.partitions.log_compaction import LogCompaction
from oncelog.runtime.sliced_work import SlicedWork
from oncelog.storage.checkpoint import CLEANED_OFFSETS, RECOVERY_POINTS
from oncelog.storage.compaction.log_cleaner import LogCleaner
from oncelog.storage.partition_log import PartitionLog
from oncelog.storage.segments.transaction_index import AbortedTransaction, TransactionIndex
from oncelog.wire.control_record import ControlType
from oncelog.wire.record_batch import restamp
from oncelog.wire.records import Record, encode_batch

from ...awaiting import until
from ...log_batches import COMPACTED, append_as_leader, marker
from ...log_directories import open_partition
from ..hosted_logs import TOPIC_ID, data_directory

NOW_MS = 1_700_000_000_000
SMALL = replace(COMPACTED, segment_bytes=400)


class Disk:
    """A data directory with two logs, and the compaction that cleans them."""

    def __init__(self, path: Path) -> None:
        self.directory = data_directory(path)
        self.logs = [
            open_partition(self.directory, name, 0, TOPIC_ID, SMALL, NOW_MS) for name in "tu"
        ]
        self.directory.note_recovered()
        self.cleaner = LogCleaner()

    def has_cleaned(self) -> bool:
        return (self.directory.path / CLEANED_OFFSETS).exists()

    @asynccontextmanager
    async def compacting(self) -> AsyncIterator[None]:
        with ThreadPoolExecutor(1) as executor:
            work = SlicedWork()
            points, cleaned = (
                CheckpointWriter(self.directory, name, executor, work)
                for name in (RECOVERY_POINTS, CLEANED_OFFSETS)
            )
            cleaner, clock = self.cleaner, SystemClock()
            compaction = LogCompaction(
                self.directory, cleaner, clock, executor, points, cleaned, work, backoff_ms=5
            )
            yield
            await compaction.stop()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    yield disk
    disk.directory.release()


class Log:
    """A stand-in for a log, which the test can observe to be freed."""


async def test_compaction_between_two_passes_keeps_no_reference_to_a_deleted_log() -> None:
    """References to thousands of deleted logs would close them together at the end of a pass."""
    looks: list[int] = []

    def beginning(logs: list[Log], _: int) -> Any:
        looks.append(len(logs))
        compaction._backoff_ms = 60_000
        yield

    directory: Any = SimpleNamespace(logs={"t-0": Log()})
    ended = weakref.ref(directory.logs["t-0"])
    cleaner: Any = SimpleNamespace(beginning=beginning)
    unused: Any = None
    compaction = LogCompaction(
        directory, cleaner, SystemClock(), unused, unused, unused, SlicedWork(), backoff_ms=20
    )
    await until(lambda: looks)
    directory.logs.clear()
    await until(lambda: ended() is None)
    await compaction.stop()
    assert looks[0] == 1


def fill(log: PartitionLog) -> None:
    for n in range(20):
        record = Record(0, NOW_MS, b"%d" % (n % 3), bytes(50))
        append_as_leader(log, encode_batch([record]), epoch=1, now_ms=NOW_MS)
    log.flushing.flush()
    log.advance_high_watermark(log.log_end_offset)


@pytest.mark.parametrize("refuses", ["write", "swap"])
async def test_compaction_on_a_full_disk_is_tried_once_per_check_until_space_is_free(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, refuses: str
) -> None:
    """In an earlier version a refused write ended the broker (simulation seed 178)."""
    cleaner, logs = disk.cleaner, disk.logs
    owner: Any = cleaner if refuses == "swap" else disk.directory.offsets
    works = getattr(owner, refuses)
    is_full = True
    refused: list[tuple[str, int]] = []
    cleaned: list[tuple[str, int]] = []

    def or_refused(*arguments: Any) -> None:
        if is_full and RECOVERY_POINTS not in arguments:
            refused.append(cleaned[-1] if refuses == "write" else cleaner.partition)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        works(*arguments)

    def finish() -> None:
        cleaned.append(cleaner.partition)
        LogCleaner.finish(cleaner)

    monkeypatch.setattr(owner, refuses, or_refused)
    monkeypatch.setattr(cleaner, "finish", finish)
    async with disk.compacting():
        for _ in range(2):
            tried = len(refused)
            for log in logs:
                fill(log)
            await until(lambda tried=tried: len(refused) >= tried + 2)
        is_full = False
        fill(logs[0])
        await until(disk.has_cleaned)
    assert set(refused[:2]) == {("t", 0), ("u", 0)}


def follow(log: PartitionLog, epoch: int, *, aborts: int = 0, batches: int = 0) -> None:
    for n in range(aborts + batches):
        abort = marker(n, ControlType.ABORT, at_ms=NOW_MS)
        record = encode_batch([Record(0, NOW_MS, b"k", b"")])
        batch = memoryview(bytearray(abort if n < aborts else record))
        restamp(batch, 0, log.log_end_offset, epoch)
        log.append_as_follower(batch, now_ms=NOW_MS)
        if n < aborts:
            at = log.log_end_offset - 1
            log.segments.active.transaction_index.append(AbortedTransaction(n, at, at, at))


@pytest.mark.parametrize("change", ["flipped bit", "cut"])
async def test_compaction_with_an_unreadable_index_stops_only_that_compaction(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A bit flips, or a truncation leaves a shorter index of the name of the one that is read."""
    broken, sound = disk.logs
    follow(broken, 4, batches=3)
    broken.roll(NOW_MS)
    follow(broken, 4, aborts=3)
    broken.roll(NOW_MS)
    broken.flushing.flush()
    broken.advance_high_watermark(broken.log_end_offset)
    cleaner = disk.cleaner
    collect = TransactionIndex.collect

    def collect_and_cut(self: TransactionIndex, *offsets: int) -> Any:
        if broken.log_end_offset == 6 and self is broken.segments.first.transaction_index:
            cleaner.truncated("t", 0, 2)
            broken.truncation.truncate_to(2)
            follow(broken, 5, batches=1)
            broken.roll(NOW_MS)
            follow(broken, 5, aborts=1)
        return collect(self, *offsets)

    if change == "cut":
        monkeypatch.setattr(TransactionIndex, "collect", collect_and_cut)
    else:
        path = broken.segments.floor(3).transaction_index.path  # type: ignore[union-attr]
        path.write_bytes(b"\1" + path.read_bytes()[1:])

    ended: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: ended.append(context))
    async with disk.compacting():
        fill(sound)
        await until(lambda: ended or disk.has_cleaned())
    assert not ended
    assert bool(broken.uncleanable) == (change == "flipped bit")


async def test_compaction_of_a_log_that_cannot_be_planned_skips_only_that_log(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """In an earlier version one damaged byte in an old segment ended the broker."""
    broken, sound = disk.logs
    for log in disk.logs:
        log.config = replace(SMALL, max_compaction_lag_ms=1)
        fill(log)
    first = broken.segments.first
    content = bytearray(first.file.path.read_bytes())
    content[16] = 7  # the magic
    first.file.path.write_bytes(content)
    first.first_batch_timestamp = None  # as after a start
    ended: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: ended.append(context))
    async with disk.compacting():
        await until(lambda: ended or disk.has_cleaned())
        fill(sound)
        cleaned_offset = sound.local.cleaned_offset
        await until(lambda: ended or sound.local.cleaned_offset > cleaned_offset)
    assert not ended and not broken.is_failed
    assert "magic 7" in broken.uncleanable and not sound.uncleanable
    assert len([record for record in caplog.records if "magic 7" in record.message]) == 1
