"""The background cleaning keeps nothing alive between its looks, and bears a full disk."""

import asyncio
import errno
import os
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.node.clock import SystemClock
from oncelog.node.partitions.checkpoint_writer import CheckpointWriter
from oncelog.node.partitions.log_compaction import LogCompaction
from oncelog.replication.sliced_work import SlicedWork
from oncelog.storage.checkpoint import CLEANED_OFFSETS, RECOVERY_POINTS
from oncelog.storage.compaction.log_cleaner import LogCleaner
from oncelog.storage.directory.log_directory import LogDirectory
from oncelog.storage.log_config import LogConfig
from oncelog.storage.partition_log import PartitionLog
from oncelog.storage.segments.transaction_index import AbortedTransaction, TransactionIndex
from oncelog.wire.control_record import ControlType, encode_marker
from oncelog.wire.record_batch import decode_header, restamp
from oncelog.wire.records import Record, encode_batch

from ..hosted_logs import TOPIC_ID
from ..own_broker import until

NOW_MS = 1_700_000_000_000
COMPACTED = LogConfig(
    segment_bytes=400,
    is_compacted=True,
    is_deleted_by_retention=False,
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)


class Log:
    """Stands for one with open files, which its end closes."""


def test_a_deleted_log_ends_when_it_is_deleted_not_at_the_next_look() -> None:
    """Three thousand that ended together at a look closed their files on the loop: 150 ms."""
    looks: list[int] = []

    def beginning(logs: list[Log], _: int) -> Any:
        looks.append(len(logs))
        yield

    async def play() -> bool:
        directory: Any = SimpleNamespace(logs={"t-0": Log()})
        ended = weakref.ref(directory.logs["t-0"])
        cleaner: Any = SimpleNamespace(beginning=beginning)
        unused: Any = None
        compaction = LogCompaction(
            directory, cleaner, SystemClock(), unused, unused, SlicedWork(), backoff_ms=20
        )
        while not looks:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.001)  # until that look is over
        directory.logs.clear()
        is_gone = ended() is None
        await compaction.stop()
        return is_gone

    assert asyncio.run(play())
    assert looks[0] == 1


def fill(log: PartitionLog) -> None:
    for n in range(20):
        record = Record(0, NOW_MS, b"%d" % (n % 3), bytes(50))
        batch = memoryview(bytearray(encode_batch([record], base_offset=0)))
        log.append_as_leader(batch, decode_header(batch), leader_epoch=1, now_ms=NOW_MS)
    log.flush()
    log.advance_high_watermark(log.log_end_offset)


@pytest.mark.parametrize("refuses", ["save", "swap"])
def test_a_full_disk_does_not_end_the_compaction_and_is_tried_once_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: str
) -> None:
    """Seed 178 of the simulator, at the time: the broker ended."""
    directory = LogDirectory(
        tmp_path, cluster_id="c", node_id=1, boot_id="boot", new_directory_id=bytes(16)
    )
    logs = [directory.open_partition(name, 0, TOPIC_ID, COMPACTED, NOW_MS) for name in "tu"]
    directory.note_recovered()
    cleaner = LogCleaner(directory.path)
    works = getattr(cleaner, refuses)
    is_full = True
    refused: list[tuple[str, int]] = []
    cleaned: list[tuple[str, int]] = []

    def or_refused(*arguments: Any) -> None:
        if is_full:
            refused.append(cleaned[-1] if refuses == "save" else cleaner.partition)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        works(*arguments)

    def finish() -> None:
        cleaned.append(cleaner.partition)
        LogCleaner.finish(cleaner)

    async def play() -> None:
        nonlocal is_full
        with ThreadPoolExecutor(1) as executor:
            points = CheckpointWriter(directory, RECOVERY_POINTS, executor, SlicedWork())
            compaction = LogCompaction(
                directory, cleaner, SystemClock(), executor, points, SlicedWork(), backoff_ms=5
            )
            for _ in range(2):
                tried = len(refused)
                for log in logs:
                    fill(log)
                await until(lambda tried=tried: len(refused) >= tried + 2)
            is_full = False
            fill(logs[0])
            await until((directory.path / CLEANED_OFFSETS).exists)
            await compaction.stop()

    monkeypatch.setattr(cleaner, refuses, or_refused)
    monkeypatch.setattr(cleaner, "finish", finish)
    asyncio.run(play())
    assert set(refused[:2]) == {("t", 0), ("u", 0)}
    directory.release()


def follow(log: PartitionLog, epoch: int, *, aborts: int = 0, batches: int = 0) -> None:
    for n in range(aborts + batches):
        marker = encode_marker(
            ControlType.ABORT,
            producer_id=n,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=NOW_MS,
        )
        record = encode_batch([Record(0, NOW_MS, b"k", b"")], base_offset=0)
        batch = memoryview(bytearray(marker if n < aborts else record))
        restamp(batch, 0, log.log_end_offset, epoch)
        log.append_as_follower(batch, now_ms=NOW_MS)
        if n < aborts:
            at = log.log_end_offset - 1
            log.segments.active.transaction_index.append(AbortedTransaction(n, at, at, at))


@pytest.mark.parametrize("change", ["flipped bit", "cut"])
def test_an_index_that_cannot_be_read_ends_a_cleaning_and_not_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """After a cut a new file, with fewer entries, may have the name of one that is read."""
    directory = LogDirectory(
        tmp_path, cluster_id="c", node_id=1, boot_id="boot", new_directory_id=bytes(16)
    )
    logs = [directory.open_partition(name, 0, TOPIC_ID, COMPACTED, NOW_MS) for name in "tu"]
    directory.note_recovered()
    broken, sound = logs
    follow(broken, 4, batches=3)
    broken.roll(NOW_MS)
    follow(broken, 4, aborts=3)
    broken.roll(NOW_MS)
    broken.flush()
    broken.advance_high_watermark(broken.log_end_offset)
    cleaner = LogCleaner(directory.path)
    collect = TransactionIndex.collect

    def collect_and_cut(self: TransactionIndex, *offsets: int) -> Any:
        if broken.log_end_offset == 6 and self is broken.segments.first.transaction_index:
            cleaner.truncated("t", 0, 2)
            broken.truncate_to(2)
            follow(broken, 5, batches=1)
            broken.roll(NOW_MS)
            follow(broken, 5, aborts=1)
        return collect(self, *offsets)

    if change == "cut":
        monkeypatch.setattr(TransactionIndex, "collect", collect_and_cut)
    else:
        path = broken.segments.floor(3).transaction_index.path  # type: ignore[union-attr]
        path.write_bytes(b"\1" + path.read_bytes()[1:])

    async def play() -> None:
        ended: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: ended.append(context))
        with ThreadPoolExecutor(1) as executor:
            points = CheckpointWriter(directory, RECOVERY_POINTS, executor, SlicedWork())
            compaction = LogCompaction(
                directory, cleaner, SystemClock(), executor, points, SlicedWork(), backoff_ms=5
            )
            fill(sound)
            await until(lambda: ended or (directory.path / CLEANED_OFFSETS).exists())
            await compaction.stop()
        assert not ended

    asyncio.run(play())
    assert set(cleaner.uncleanable) == ({("t", 0)} if change == "flipped bit" else set())
    directory.release()
