"""Test that a table of offsets that was kept up to date equals one loaded from the log.

Random transactional and other commits, markers and tombstones are written to a real log of small
segments, which is compacted at random times. One table applies each batch at its append, and
another table loads the rest of the log. Both must be equal in all fields. Their offsets must be the
last value of each key for a read_committed consumer.
"""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.coordinator.groups.offset_table import OffsetTable
from oncelog.coordinator.groups.records import (
    OffsetKey,
    OffsetValue,
    decode_key,
    encode_offset_key,
    encode_offset_value,
)
from oncelog.storage.compaction.log_cleaner import LogCleaner
from oncelog.storage.partition_log import Origin, PartitionLog
from oncelog.wire.control_record import ControlType, decode_marker
from oncelog.wire.record_batch import decode_header
from oncelog.wire.records import Record, decode_batch, encode_batch

from ...log_batches import COMPACTED, batches_in, clean, marker

CONFIG = replace(COMPACTED, segment_bytes=700, index_interval_bytes=100, delete_retention_ms=50)
Key = tuple[str, int]  # group, partition


class History:
    """A partition of __consumer_offsets, with the offset table of its leader."""

    def __init__(self, directory: Path) -> None:
        self.now_ms = 1_000
        self.log = PartitionLog.open(
            directory / "__consumer_offsets-0",
            topic="__consumer_offsets",
            partition=0,
            topic_id=bytes(16),
            config=CONFIG,
            now_ms=self.now_ms,
        )
        self.cleaner = LogCleaner(keys_max=100)
        self.table = OffsetTable()
        self.epochs: dict[int, int] = {}
        self.open: set[int] = set()
        self.commits = 0

    def append(self, batch: bytes, **options: Any) -> None:
        options["origin"] = Origin.COORDINATOR
        writable = memoryview(bytearray(batch))
        header = decode_header(writable)
        self.log.append_as_leader(writable, header, leader_epoch=0, now_ms=self.now_ms, **options)
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.table.replay(decode_header(writable), decode_batch(writable))

    def commit(self, keys: list[Key], producer: int) -> None:
        records: list[Record] = []
        for group, partition in keys:
            self.commits += 1
            value = encode_offset_value(OffsetValue(self.commits, -1, "", self.now_ms))
            key = encode_offset_key(group, "t", partition)
            records.append(Record(len(records), self.now_ms, key, value))
        if not producer:
            self.append(encode_batch(records))
            return
        epoch = self.epochs.setdefault(producer, 0)
        batch = encode_batch(
            records, transactional=True, producer_id=producer, producer_epoch=epoch
        )
        guard = self.log.producer_state.begin_verification(producer, epoch, -1, now_ms=self.now_ms)
        self.append(batch, guard=guard)
        self.open.add(producer)

    def end(self, producer: int, commits: bool, bumps: bool) -> None:
        if producer not in self.open:
            return
        self.open.discard(producer)
        self.epochs[producer] += bumps
        data = marker(producer, commits, producer_epoch=self.epochs[producer], at_ms=self.now_ms)
        self.append(data, transaction_version=2 if bumps else 0)

    def delete(self, keys: list[Key]) -> None:
        records = [
            Record(i, self.now_ms, encode_offset_key(group, "t", partition), None)
            for i, (group, partition) in enumerate(keys)
        ]
        self.append(encode_batch(records))

    def clean(self, waits_ms: int) -> None:
        self.now_ms += waits_ms
        self.log.flushing.flush()
        clean(self.cleaner, self.log, self.now_ms)

    def replayed(self) -> OffsetTable:
        table = OffsetTable()
        for batch in batches_in(self.log):
            table.replay(decode_header(batch), decode_batch(batch))
        return table

    def read_committed(self) -> dict[Key, int]:
        """Return the last offset of each key, read from the log as by a read_committed consumer."""
        waiting: dict[int, list[Record]] = {}
        last: dict[Key, Record] = {}

        def take(records: list[Record]) -> None:
            for record in records:
                key = decode_key(record.key)
                assert isinstance(key, OffsetKey)
                group, _, partition = key
                before = last.get((group, partition))
                if before is None or before.offset < record.offset:
                    last[group, partition] = record

        for batch in batches_in(self.log):
            header = decode_header(batch)
            if header.is_control:
                records = waiting.pop(header.producer_id, [])
                if header.record_count and decode_marker(batch)[0] is ControlType.COMMIT:
                    take(records)
            elif header.is_transactional:
                waiting.setdefault(header.producer_id, []).extend(decode_batch(batch))
            else:
                take(decode_batch(batch))
        return {
            key: int.from_bytes(record.value[2:10], "big")
            for key, record in last.items()
            if record.value is not None
        }


keys = st.lists(
    st.tuples(st.sampled_from(["g", "h"]), st.integers(0, 2)), min_size=1, max_size=3, unique=True
)
producers = st.integers(1, 3)
steps = st.one_of(
    st.tuples(st.just("commit"), keys, st.integers(0, 3)),
    st.tuples(st.just("commit"), keys, producers),
    st.tuples(st.just("end"), producers, st.booleans(), st.booleans()),
    st.tuples(st.just("delete"), keys),
    st.tuples(st.just("clean"), st.sampled_from([0, 30, 100])),
)


@pytest.mark.in_turn
@settings(max_examples=150, deadline=None)
@given(st.lists(steps, min_size=5, max_size=60))
def test_offset_table_replayed_after_compaction_equals_the_live_table(
    history_steps: list[tuple],
) -> None:
    with TemporaryDirectory() as directory:
        history = History(Path(directory))
        for name, *arguments in history_steps:
            getattr(history, name)(*arguments)
        history.clean(100)
        assert vars(history.replayed()) == vars(history.table)
        shown = {
            (group, partition): value.offset
            for group in history.table.group_ids()
            for topic, partition in history.table.committed(group)
            if (value := history.table.fetch(group, topic, partition)) is not None
        }
        assert shown == history.read_committed()
        assert history.table.size == len(shown) + sum(
            len(wheres) for groups in history.table._pending.values() for wheres in groups.values()
        )
        assert history.table.broken_records == 0
