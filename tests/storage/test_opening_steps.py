"""Test that a log with many transactions is opened with few reads, and in small steps."""

import heapq
import os
from itertools import pairwise

import pytest

from oncelog.storage.log_config import LogConfig
from oncelog.storage.partition_log import PartitionLog
from oncelog.storage.producers import recovery
from oncelog.storage.producers.snapshot import ProducerSnapshotEntry
from oncelog.storage.producers.state import ProducerStateTable
from oncelog.storage.segments.entry_file import EntryFile
from oncelog.storage.segments.segment import Segment
from oncelog.wire.control_record import ControlType
from oncelog.wire.record_batch import decode_header

from ..log_batches import end_transaction
from .conftest import NOW_MS, TOPIC_ID

COUNT = 1_000


@pytest.fixture
def aborts(logs):
    """Return a closed log with aborted transactions above the first offset of a hanging one."""
    log = logs.open()
    logs.lead_transaction(log, producer_id=8)
    for sequence in range(COUNT):
        logs.lead_transaction(log, sequence=sequence)
        end_transaction(log, 7, ControlType.ABORT, at_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    log.close()
    return logs


def counted(monkeypatch, owner, name, amount=lambda *_: 1):
    """Return a list of one number, which grows by `amount` of the arguments of each call."""
    total, real = [0], getattr(owner, name)

    def count(*arguments):
        total[0] += amount(*arguments)
        return real(*arguments)

    monkeypatch.setattr(owner, name, count)
    return total


def opening(logs, **options):
    return PartitionLog.opening(
        logs.directory,
        topic="t",
        partition=0,
        topic_id=TOPIC_ID,
        config=LogConfig(),
        now_ms=NOW_MS,
        **options,
    )


def test_log_with_aborted_transactions_is_opened_with_two_reads_for_each(aborts, monkeypatch):
    reads, opens = counted(monkeypatch, os, "pread"), counted(monkeypatch, os, "open")
    log = aborts.open(clean_shutdown=True)
    assert log.log_end_offset == 1 + 2 * COUNT
    assert reads[0] < 2 * COUNT
    assert opens[0] < COUNT // 10


def test_log_with_aborted_transactions_is_opened_in_steps_of_few_index_entries(aborts, monkeypatch):
    entries = counted(monkeypatch, EntryFile, "entries", lambda _, first, end: end - first)
    totals = [0] + [entries[0] for _ in opening(aborts, clean_shutdown=True)]
    assert max(after - before for before, after in pairwise(totals)) <= 2 * 128


def test_transactions_below_the_high_watermark_are_removed_while_the_log_is_opened(
    aborts, monkeypatch
):
    """After a power failure all headers are read, and the first fetch would remove them all."""
    pops, totals = counted(monkeypatch, heapq, "heappop"), [0]
    end_offset = 1 + 2 * COUNT
    steps = opening(aborts, machine_restarted=True, high_watermark=end_offset)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            log = end.value
            break
        totals.append(pops[0])
    totals.append(pops[0])
    assert pops[0] == COUNT
    assert max(after - before for before, after in pairwise(totals)) <= 64
    assert (log.last_stable_offset, log.high_watermark) == (0, end_offset)
    assert pops[0] == COUNT


def test_open_transactions_of_a_snapshot_are_loaded_in_steps_in_the_order_of_their_offsets():
    count = 5_000
    entries = [
        ProducerSnapshotEntry(n, 0, 0, (n * 7) % count, 0, NOW_MS, 0, (n * 7) % count)
        for n in range(count)
    ]
    table, sizes = ProducerStateTable(), [0]
    for _ in table.loading_entries(entries, count, NOW_MS):
        sizes.append(len(table.ongoing()))
    sizes.append(len(table.ongoing()))
    assert max(after - before for before, after in pairwise(sizes)) <= 1_024
    assert [first_offset for first_offset, _ in table.ongoing()] == list(range(count))
    assert table.first_ongoing_offset == 0


def test_windows_of_producers_are_filled_in_steps(batch):
    header = decode_header(batch(producer_id=0, producer_epoch=0, base_sequence=0))
    headers = [(n, header._replace(producer_id=n % 1_024, base_sequence=n)) for n in range(4_096)]
    table = ProducerStateTable()
    for offset, each in headers[-1_024:]:
        table.append(each, offset, NOW_MS)
    read, sizes = [], [0]
    for _ in table.refilling_windows(each for each in headers if not read.append(each)):
        sizes.append(len(read))
    assert max(after - before for before, after in pairwise(sizes)) <= 512
    windows = [[each.base_sequence for each in entry.batches] for entry in table]
    assert windows == [list(range(n, 4_096, 1_024)) for n in range(1_024)]


def test_windows_of_producers_are_filled_without_a_look_at_segments_beyond_the_limit(
    logs, monkeypatch
):
    log = logs.open()
    for sequence in range(20):
        logs.lead(log, producer_id=7, producer_epoch=0, base_sequence=sequence)
        log.roll(NOW_MS)
    log.close()
    monkeypatch.setattr(recovery, "REFILL_BATCHES_MAX", 3)
    looks = counted(monkeypatch, Segment, "position_of")
    logs.open(clean_shutdown=True)
    assert looks[0] <= 5
