"""Test the results of compaction on a real log, case by case."""

import errno
import os
import struct
from dataclasses import replace

import pytest

from oncelog.runtime.steps import run_to_end
from oncelog.storage.compaction import cleaning
from oncelog.storage.compaction.cleaner import KeyMap
from oncelog.storage.compaction.cleaning import SLICE_BYTES, CleanedGroup
from oncelog.storage.compaction.log_cleaner import LogCleaner, SegmentsChanged
from oncelog.storage.log_config import LogConfig
from oncelog.storage.partition_log import PartitionLog
from oncelog.storage.producers.entry import ProducerEntry
from oncelog.storage.segments.contiguous_mark import is_marked
from oncelog.storage.segments.index import CorruptIndex
from oncelog.storage.segments.segment import Segment
from oncelog.wire.control_record import ControlType
from oncelog.wire.errors import CorruptMessage, InvalidRecord, KafkaStorageError
from oncelog.wire.record_batch import decode_header, restamp
from oncelog.wire.records import Record, decode_batch, encode_batch

from ...log_batches import COMPACTED, append_as_leader, batches_in, clean, end_transaction
from ...present import present

CONFIG = replace(COMPACTED, segment_bytes=1 << 20, delete_retention_ms=100)
NOW = 1_000


class Compacted:
    """A log with its cleaner, with short methods to write, roll and clean."""

    def __init__(self, directory, config=CONFIG, **cleaner_options):
        self.directory = directory
        self.config = config
        self.open_log()
        self.cleaner = LogCleaner(**cleaner_options)

    def open_log(self, **options):
        self.log = PartitionLog.open(
            self.directory / "t-0",
            topic="t",
            partition=0,
            topic_id=bytes(16),
            config=self.config,
            now_ms=NOW,
            **options,
        )
        self.commit()

    def commit(self):
        self.log.advance_high_watermark(self.log.log_end_offset)

    def put(self, *pairs, now_ms=NOW, producer=None, guard=None, **options) -> int:
        records = [Record(n, now_ms, key, value) for n, (key, value) in enumerate(pairs)]
        if producer is not None:
            producer_id, epoch, sequence = producer
            options |= {
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "base_sequence": sequence,
            }
            if options.get("transactional"):
                guard = self.log.producer_state.begin_verification(
                    producer_id, epoch, sequence, now_ms=NOW
                )
        batch = encode_batch(records, **options)
        info = append_as_leader(self.log, batch, epoch=3, now_ms=now_ms, guard=guard)
        self.commit()
        return info.first_offset

    def put_twice(self):
        """Write two values of one key to a closed segment, so that a cleaning removes one."""
        self.put((b"a", b"1"))
        self.put((b"a", b"2"))
        self.roll()
        self.log.flushing.flush()

    def mark(self, producer_id, *, epoch=0, is_abort=False) -> int:
        kind = ControlType(not is_abort)
        info = end_transaction(
            self.log, producer_id, kind, producer_epoch=epoch, epoch=3, at_ms=NOW
        )
        self.commit()
        return info.first_offset

    def roll(self):
        self.log.roll(NOW)

    def clean(self, now_ms=NOW) -> int:
        """Close the active segment, clean, and return how many groups of segments were replaced."""
        self.roll()
        self.log.flushing.flush()
        return clean(self.cleaner, self.log, now_ms) or 0

    def batches(self):
        """Return (header, records) of each batch in the log."""
        return [(decode_header(batch), decode_batch(batch)) for batch in batches_in(self.log)]

    def records(self):
        return [
            (record.offset, record.key, record.value)
            for header, records in self.batches()
            for record in records
            if not header.is_control
        ]


@pytest.fixture
def compacted(tmp_path) -> Compacted:
    return Compacted(tmp_path)


def test_cleaner_keeps_the_last_record_of_each_key_at_its_offset(compacted):
    compacted.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    compacted.put((b"c", b"1"), (b"b", b"2"))
    assert compacted.clean() == 1
    assert compacted.records() == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2")]
    headers = [header for header, _ in compacted.batches()]
    assert [(h.base_offset, h.last_offset_delta) for h in headers] == [(0, 2), (3, 1)]
    assert {h.partition_leader_epoch for h in headers} == {3}


def test_cleaned_log_is_no_longer_marked_as_contiguous(compacted):
    """With the mark, the next start would take a gap before the last batch for damage."""
    compacted.put_twice()
    assert is_marked(compacted.log.directory)
    assert compacted.clean()
    assert not is_marked(compacted.log.directory)


def test_cleaner_leaves_the_active_segment_unchanged_until_a_roll(compacted):
    compacted.put((b"a", b"1"))
    compacted.roll()
    compacted.put((b"a", b"2"))
    compacted.log.flushing.flush()
    plan = compacted.cleaner.plan(compacted.log, NOW)
    assert plan.end_offset == 1
    compacted.clean()
    assert compacted.records() == [(1, b"a", b"2")]


@pytest.mark.parametrize("compression", [0, 1, 2, 3, 4])
def test_cleaned_batch_with_fewer_records_keeps_its_codec_timestamps_and_headers(
    compacted, compression
):
    headers = (("trace", b"1"), ("none", None))
    records = [
        Record(0, 77, b"a", b"1"),
        Record(1, 78, b"b", b"1" * 100, headers),
        Record(2, 79, b"a", b"2"),
    ]
    batch = memoryview(
        bytearray(
            encode_batch(
                records,
                compression=compression,
                producer_id=5,
                producer_epoch=2,
                base_sequence=40,
            )
        )
    )
    compacted.log.append_as_leader(batch, decode_header(batch), leader_epoch=3, now_ms=NOW)
    compacted.put((b"a", b"3"))
    compacted.clean()
    header, kept = compacted.batches()[0]
    assert kept == [records[1]]
    assert header.compression == compression
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 40)
    assert (header.last_offset_delta, header.record_count, header.max_timestamp) == (2, 1, 78)


def test_cleaned_batch_with_log_append_time_keeps_its_timestamp(tmp_path):
    compacted = Compacted(tmp_path, LogConfig(uses_append_time=True, is_compacted=True,
        min_cleanable_dirty_ratio=0.0))  # fmt: skip
    compacted.put((b"a", b"1"), (b"b", b"1"), now_ms=555)
    compacted.put((b"a", b"2"), now_ms=666)
    compacted.clean()
    assert [(h.is_log_append_time, h.max_timestamp) for h, _ in compacted.batches()] == [
        (True, 555),
        (True, 666),
    ]
    assert compacted.batches()[0][1] == [Record(1, 555, b"b", b"1")]


def test_tombstone_stays_readable_until_its_delete_horizon(compacted):
    compacted.put((b"a", b"1"))
    compacted.put((b"a", None), (b"b", b"1"))
    compacted.clean(NOW)
    assert compacted.records() == [(1, b"a", None), (2, b"b", b"1")]
    header, records = compacted.batches()[0]
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW + 100
    assert [record.timestamp for record in records] == [NOW, NOW]
    compacted.put((b"x", b"1"))
    compacted.clean(NOW + 99)
    assert compacted.records()[0] == (1, b"a", None)
    assert compacted.batches()[0][0].base_timestamp == NOW + 100  # set once
    compacted.put((b"y", b"1"))
    compacted.clean(NOW + 100)
    assert compacted.records()[0] == (2, b"b", b"1")


def test_tombstone_is_removed_earlier_by_a_clock_advance_after_its_horizon_was_set(compacted):
    compacted.put((b"a", b"1"))
    compacted.put((b"a", None), (b"b", b"1"))
    compacted.clean(NOW)
    for at_ms, first in ((NOW - 1, (1, b"a", None)), (NOW, (2, b"b", b"1"))):
        compacted.log.local.advanced_since_ms = lambda moment_ms, at_ms=at_ms: (
            99 if moment_ms <= at_ms else 0
        )
        compacted.put((b"x", b"1"))
        compacted.clean(NOW + 1)
        assert compacted.records()[0] == first


def test_cleaner_removes_records_without_a_key(compacted):
    compacted.config = compacted.log.config = LogConfig(segment_bytes=1 << 20)  # not compacted yet
    compacted.put((None, b"1"), (b"a", b"1"))
    compacted.log.config = CONFIG
    compacted.clean()
    assert compacted.records() == [(1, b"a", b"1")]


def test_cleaner_removes_aborted_records_at_once_and_their_marker_after_its_delete_horizon(
    compacted,
):
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"aborted"), (b"b", b"aborted"), producer=(5, 0, 0), transactional=True)
    compacted.mark(5, is_abort=True)
    compacted.put((b"c", b"1"), producer=(5, 0, 2))  # the producer's last record is no marker
    assert compacted.log.aborted_transactions.between(0, 9) == [(5, 1)]
    compacted.clean(NOW)
    assert compacted.records() == [(0, b"a", b"1"), (4, b"c", b"1")]
    markers = [header for header, _ in compacted.batches() if header.is_control]
    assert [marker.has_delete_horizon for marker in markers] == [False]  # data was seen just now
    assert compacted.log.aborted_transactions.between(0, 9) == [(5, 1)]
    compacted.put((b"x", b"1"))
    compacted.clean(NOW + 1)
    markers = [header for header, _ in compacted.batches() if header.is_control]
    assert [marker.base_timestamp for marker in markers] == [NOW + 101]
    assert compacted.log.aborted_transactions.between(0, 9) == []
    compacted.put((b"x", b"2"))
    present(compacted.log.producer_state.entry(5)).last_marker_offset = -1  # as after a restart
    compacted.clean(NOW + 101)
    assert [header for header, _ in compacted.batches() if header.is_control] == []


def test_commit_marker_stays_as_long_as_its_records(compacted):
    compacted.put((b"a", b"1"), producer=(5, 0, 0), transactional=True)
    compacted.mark(5)
    compacted.put((b"x", b"1"), producer=(5, 0, 1))
    present(compacted.log.producer_state.entry(5)).last_marker_offset = -1
    for now_ms in (NOW, NOW + 200, NOW + 400):
        compacted.put((b"y", b"1"))
        compacted.clean(now_ms)
        assert [header.is_control for header, _ in compacted.batches()][:2] == [False, True]
    compacted.put((b"a", b"2"))
    for now_ms in (NOW + 600, NOW + 800, NOW + 1000):
        compacted.put((b"y", b"2"))
        compacted.clean(now_ms)
    assert not any(header.is_control for header, _ in compacted.batches())


def test_last_marker_of_a_producer_is_kept_by_cleaning(compacted):
    """The marker has the epoch that fences older producers, also after a recovery from the log."""
    compacted.mark(5, epoch=9)
    for now_ms in (NOW, NOW + 200, NOW + 400):
        compacted.put((b"y", b"1"))
        compacted.clean(now_ms)
    header, records = compacted.batches()[0]
    assert header.is_control
    assert header.producer_epoch == 9
    assert len(records) == 1


def test_last_batch_of_a_producer_is_kept_as_an_empty_batch_until_the_producer_expires(compacted):
    compacted.put((b"a", b"1"), (b"a", b"2"), producer=(5, 0, 0))
    compacted.put((b"a", b"3"), (b"a", b"4"), producer=(5, 0, 2))
    compacted.put((b"a", b"5"))
    compacted.clean()
    assert compacted.records() == [(4, b"a", b"5")]
    header, _ = compacted.batches()[0]
    assert (header.base_offset, header.record_count, header.last_offset) == (2, 0, 3)
    assert (header.producer_id, header.base_sequence) == (5, 2)
    run_to_end(compacted.log.producer_state.expiring(NOW + 10_000, 10))
    compacted.put((b"b", b"1"))
    compacted.clean()
    assert compacted.batches()[0][0].base_offset == 4


def test_cleaner_keeps_the_last_offset_of_the_cleaned_range(compacted):
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"2"), producer=(5, 0, 0), transactional=True)
    compacted.mark(5, is_abort=True)
    run_to_end(compacted.log.producer_state.expiring(NOW + 10_000, 10))
    for now_ms in (NOW, NOW + 200, NOW + 400):
        compacted.clean(now_ms)
    assert compacted.batches()[-1][0].last_offset == 2


def test_cleaner_with_little_memory_cleans_a_log_in_several_passes(tmp_path):
    compacted = Compacted(tmp_path, keys_max=2)
    for value in (b"1", b"2"):
        for key in (b"a", b"b", b"c", b"d", b"e"):
            compacted.put((key, value))
    passes = []
    while not passes or passes[-1] < 10:
        compacted.clean()
        passes.append(compacted.log.local.cleaned_offset)
    assert passes == [2, 4, 6, 8, 10]
    assert compacted.records() == [
        (5, b"a", b"2"), (6, b"b", b"2"), (7, b"c", b"2"), (8, b"d", b"2"), (9, b"e", b"2"),
    ]  # fmt: skip


def test_cleaner_key_map_adds_no_key_of_a_batch_without_room_unless_it_is_the_first_batch():
    keys = KeyMap(0, keys_max=3)
    big = encode_batch([Record(n, 0, b"%d" % n, b"") for n in range(10)], base_offset=0)
    assert keys.add_batch(decode_header(big), big)  # the first one always
    more = encode_batch([Record(10, 0, b"x", b"")], base_offset=10)
    assert not keys.add_batch(decode_header(more), more)
    assert keys.end_offset == 10
    again = encode_batch([Record(10, 0, b"3", b"")], base_offset=10)
    assert keys.add_batch(decode_header(again), again)  # no new key
    assert keys.is_superseded(b"3", 3)
    assert not keys.is_superseded(b"3", 10)
    assert not keys.is_superseded(b"x", 0)


def test_segment_without_a_record_to_remove_is_not_replaced_by_cleaning(compacted):
    compacted.put((b"a", b"1"), (b"b", b"1"))
    files = sorted(compacted.log.segments.first.paths()[0].parent.iterdir())
    assert compacted.clean() == 0
    assert compacted.log.local.cleaned_offset == 2
    assert not [path for path in files if "cleaned" in path.name]
    assert compacted.clean() == 0


def test_small_segments_are_merged_by_cleaning_and_reopened_after_a_restart(compacted):
    for n in range(10):
        compacted.put((b"k%d" % (n % 4), b"%d" % n))
        compacted.roll()
    assert len(compacted.log.segments) == 11
    compacted.clean()
    assert len(compacted.log.segments) == 2
    expected = compacted.records()
    assert [offset for offset, _, _ in expected] == [6, 7, 8, 9]
    names = {path.name for path in (compacted.directory / "t-0").glob("*.log*")}
    compacted.log.retention.delete_old_segments(NOW + 1)
    compacted.log.close()
    compacted.open_log(clean_shutdown=True, recovery_point=10)
    assert compacted.records() == expected
    assert "00000000000000000000.log" in names
    assert not list((compacted.directory / "t-0").glob("*.cleaned"))


def test_cleaner_of_a_long_log_works_in_slices(compacted):
    for n in range(40):
        compacted.put((b"k%d" % n, b"v" * 100_000))
    compacted.roll()
    compacted.log.flushing.flush()
    steps = list(compacted.cleaner.begin([compacted.log], NOW).steps())
    assert len(steps) >= 2 * 40 * 100_000 // (SLICE_BYTES + 100_100) - 2


def test_batch_that_cannot_be_read_stops_the_cleaning_of_its_log(compacted):
    compacted.put_twice()
    path = compacted.log.segments.first.paths()[0]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    cleaning = compacted.cleaner.begin([compacted.log], NOW)
    with pytest.raises((CorruptMessage, InvalidRecord)) as failure:
        list(cleaning.steps())
    compacted.cleaner.give_up(failure.value)
    assert "checksum" in compacted.log.uncleanable
    assert compacted.cleaner.begin([compacted.log], NOW) is None
    assert path.read_bytes() == content


def test_segment_deleted_by_retention_during_cleaning_is_not_replaced(compacted):
    compacted.put_twice()
    cleaning = compacted.cleaner.begin([compacted.log], NOW)
    compacted.log.retention.advance_log_start_offset(2)
    assert compacted.log.retention.delete_old_segments(NOW) == 1
    group = next(step for step in cleaning.steps() if step is not None)
    with pytest.raises(SegmentsChanged) as failure:
        compacted.cleaner.swap(group)
    compacted.cleaner.give_up(failure.value)
    assert not compacted.log.uncleanable


def follow(log, key, count, *, epoch):
    for offset in range(log.log_end_offset, log.log_end_offset + count):
        batch = memoryview(
            bytearray(encode_batch([Record(offset, NOW, key, b"1")], base_offset=offset))
        )
        restamp(batch, 0, offset, epoch)
        log.append_as_follower(batch, now_ms=NOW)
    log.flushing.flush()
    log.advance_high_watermark(log.log_end_offset)


def following(directory):
    """Return a log of several segments, appended to as by a follower."""
    compacted = Compacted(directory, replace(CONFIG, segment_bytes=400))
    follow(compacted.log, b"a", 30, epoch=4)
    return compacted


@pytest.mark.parametrize("grows_by", [0, 1, 20])
def test_segment_truncated_during_cleaning_is_not_replaced(tmp_path, grows_by):
    """An unclean election truncates a segment that is being cleaned, and new records follow."""
    compacted = following(tmp_path)
    log, cleaner = compacted.log, compacted.cleaner
    steps = present(cleaner.begin([log], NOW)).steps()
    group = next(step for step in steps if step is not None)
    log.truncation.truncate_to(3)
    cleaner.truncated("t", 0, 3)
    follow(log, b"b", grows_by, epoch=5)
    with pytest.raises(SegmentsChanged) as failure:
        cleaner.swap(group)
    with pytest.raises(SegmentsChanged):
        cleaner.finish()
    cleaner.give_up(failure.value)
    assert [key for _, key, _ in compacted.records()] == [b"a"] * 3 + [b"b"] * grows_by
    assert cleaner.plan(log, NOW).first_dirty_offset == 0
    if grows_by == 20:
        assert compacted.clean() > 0
        assert [key for _, key, _ in compacted.records()] == [b"a", b"b"]


def test_log_truncated_during_a_read_of_the_cleaner_is_not_marked_uncleanable(tmp_path):
    compacted = following(tmp_path)
    log, cleaner = compacted.log, compacted.cleaner
    cleaner.begin([log], NOW)
    log.truncation.truncate_to(3)
    cleaner.truncated("t", 0, 3)
    cleaner.give_up(CorruptMessage("there are fewer bytes than the size of the segment says"))
    assert not log.uncleanable


@pytest.mark.parametrize("change", ["cut above", "cut another"])
def test_cleaning_with_a_truncation_elsewhere_meanwhile_finishes(tmp_path, change):
    compacted = following(tmp_path)
    log, cleaner = compacted.log, compacted.cleaner
    steps = present(cleaner.begin([log], NOW)).steps()
    if change == "cut above":
        log.truncation.truncate_to(29)
        cleaner.truncated("t", 0, 29)
    else:
        cleaner.truncated("t", 1, 0)
    for step in steps:
        if step is not None:
            cleaner.swap(step)
    cleaner.finish()
    assert compacted.log.segments.first.size_bytes < 400


def test_log_deleted_during_its_cleaning_stays_dirty(compacted):
    compacted.put((b"a", b"1"), (b"a", b"2"))
    compacted.roll()
    compacted.log.flushing.flush()
    steps = compacted.cleaner.begin([compacted.log], NOW).steps()
    for _ in steps:
        pass
    compacted.log.local.retire()
    with pytest.raises(SegmentsChanged) as failure:
        compacted.cleaner.finish()
    compacted.cleaner.give_up(failure.value)
    assert compacted.log.local.cleaned_offset == 0


def test_cleaning_that_fails_leaves_no_temporary_files(compacted):
    compacted.put_twice()

    class Full(OSError):
        pass

    def fault_point(name):
        if name == "cleaner.before-fsync":
            raise Full(errno.ENOSPC, "no room")

    compacted.cleaner._fault_point = fault_point
    cleaning = compacted.cleaner.begin([compacted.log], NOW)
    with pytest.raises(Full) as failure:
        list(cleaning.steps())
    compacted.cleaner.give_up(failure.value)
    assert not list((compacted.directory / "t-0").glob("*.cleaned"))
    compacted.cleaner._fault_point = lambda name: None
    assert compacted.clean() == 1


def test_segment_group_that_is_not_swapped_in_leaves_no_files(compacted):
    """After a crash, files of such a group would look like an incomplete swap."""
    compacted.put_twice()
    steps = present(compacted.cleaner.begin([compacted.log], NOW)).steps()
    group = next(step for step in steps if step is not None)
    assert list((compacted.directory / "t-0").glob("*.cleaned"))
    compacted.log.local.retire("it is deleted")
    with pytest.raises(KafkaStorageError) as failure:
        compacted.cleaner.swap(group)
    compacted.cleaner.give_up(failure.value)
    assert not list((compacted.directory / "t-0").glob("*.cleaned"))


def test_producer_snapshot_older_than_a_removed_marker_does_not_reopen_its_transaction(tmp_path):
    """The marker of the transaction was removed, so a replay from the snapshot would not end it."""
    compacted = Compacted(tmp_path)
    compacted.put((b"z", b"1" * 600_000))
    compacted.put((b"a", b"1"), producer=(5, 0, 0), transactional=True)
    compacted.roll()  # its snapshot knows the open transaction
    compacted.mark(5, is_abort=True)
    compacted.put((b"b", b"1" * 600_000), producer=(5, 0, 1))
    for now_ms in (NOW, NOW + 200, NOW + 400):
        present(compacted.log.producer_state.entry(5)).last_marker_offset = -1
        compacted.put((b"y", b"1"))
        compacted.clean(now_ms)
    assert len(compacted.log.segments) > 2  # too large to become one
    assert not any(header.is_control for header, _ in compacted.batches())
    newest = max((tmp_path / "t-0").glob("*.snapshot"))
    newest.unlink()
    compacted.open_log(recovery_point=compacted.log.flushing.recovery_point)
    assert compacted.log.producer_state.first_ongoing_offset is None


def test_log_truncated_below_its_cleaned_offset_is_dirty_from_the_truncation_point(compacted):
    compacted.put((b"a", b"1"))
    compacted.put((b"b", b"1"))
    compacted.clean()
    assert compacted.cleaner.plan(compacted.log, NOW).dirty_bytes == 0
    compacted.log.truncation.truncate_to(1)
    assert compacted.cleaner.plan(compacted.log, NOW).first_dirty_offset == 1
    compacted.log.truncation.truncate_fully_and_start_at(0)
    assert compacted.log.local.cleaned_offset == 0


def test_cleaner_chooses_the_log_with_the_highest_dirty_ratio(tmp_path):
    first, second = Compacted(tmp_path / "1"), Compacted(tmp_path / "2")
    second.log.topic = "u"
    for compacted in (first, second):
        compacted.put((b"a", b"1"))
        compacted.roll()
        compacted.log.flushing.flush()
    cleaner = LogCleaner()
    first.log.local.cleaned_offset = 1
    cleaning = cleaner.begin([first.log, second.log], NOW)
    assert cleaning is not None
    assert cleaner._log is second.log


@pytest.mark.parametrize("is_deleted", [False, True])
def test_log_cleaner_of_many_producers_plans_in_steps(compacted, is_deleted):
    """During the steps the log may be appended to or deleted."""
    for producer_id in range(600):
        compacted.put((b"k", b"%d" % producer_id), producer=(producer_id, 0, 0))
    compacted.roll()
    compacted.log.flushing.flush()
    steps = compacted.cleaner.beginning([compacted.log], NOW)
    next(steps)
    next(steps)
    compacted.put((b"k", b"last"), producer=(599, 0, 1))
    if is_deleted:
        compacted.log.local.retire("it is deleted")
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            cleaning = end.value
            break
        count += 1
    assert count >= 1
    assert (cleaning is None) == is_deleted
    if not is_deleted:
        for step in cleaning.steps():
            if isinstance(step, CleanedGroup):
                compacted.cleaner.swap(step)
        compacted.cleaner.finish()
        assert compacted.records() == [(599, b"k", b"599"), (600, b"k", b"last")]


def last_batches(compacted, producer_id):
    """Return (base offset, sequence) of each batch of a producer."""
    headers = [header for header, _ in compacted.batches()]
    return [(h.base_offset, h.base_sequence) for h in headers if h.producer_id == producer_id]


def finish(cleaner, steps):
    """Plan a cleaning, and run it to its end."""
    for step in present(run_to_end(steps)).steps():
        if isinstance(step, CleanedGroup):
            cleaner.swap(step)
    cleaner.finish()


@pytest.mark.parametrize("steps_before", [1, 2, 3])
def test_cleaning_with_a_batch_written_while_producers_are_collected_keeps_that_batch(
    compacted, steps_before
):
    """The producers are collected in steps, and the batch has its producer's newest sequence."""
    for producer_id in range(600):
        compacted.put((b"k%d" % producer_id, b"1"), producer=(producer_id, 0, 0))
    compacted.roll()
    compacted.log.flushing.flush()
    steps = compacted.cleaner.beginning([compacted.log], NOW)
    for _ in range(steps_before):
        next(steps)
    compacted.put((b"k0", b"2"), producer=(0, 0, 1))
    compacted.put((b"k0", b"3"), producer=(599, 0, 1))
    compacted.roll()
    compacted.log.flushing.flush()
    finish(compacted.cleaner, steps)
    assert last_batches(compacted, 0)[-1] == (600, 1)
    compacted.clean()
    assert last_batches(compacted, 0) == [(600, 1)]


def test_cleaning_keeps_the_batch_that_a_truncation_would_make_the_newest(compacted):
    """The producer's last batch is above the high watermark, and may be truncated."""
    compacted.put((b"a", b"1"), producer=(7, 0, 0))
    compacted.put((b"a", b"2"))
    compacted.roll()
    compacted.log.flushing.flush()
    batch = encode_batch([Record(0, NOW, b"a", b"3")], producer_id=7, producer_epoch=0,
                         base_sequence=1)  # fmt: skip
    append_as_leader(compacted.log, batch, epoch=3, now_ms=NOW)
    finish(compacted.cleaner, compacted.cleaner.beginning([compacted.log], NOW))
    assert last_batches(compacted, 7) == [(0, 0), (2, 1)]
    compacted.log.truncation.truncate_to(2)
    entry = present(compacted.log.producer_state.entry(7))
    assert (entry.next_sequence, entry.last_data_offset) == (1, 0)


@pytest.mark.parametrize("change", ["cut", "dropped"])
def test_cleaning_is_not_begun_if_segments_are_truncated_or_deleted_while_it_is_planned(
    tmp_path, change
):
    compacted = following(tmp_path)
    log, cleaner = compacted.log, compacted.cleaner
    for producer_id in range(300):
        log.producer_state._entries[producer_id] = ProducerEntry(producer_id)
    steps = cleaner.beginning([log], NOW)
    for _ in range(2):
        next(steps)
    if change == "cut":
        cleaner.truncated("t", 0, 3)
        log.truncation.truncate_to(3)
        follow(log, b"b", 20, epoch=5)
    else:
        log.retention.advance_log_start_offset(20)
        log.retention.delete_old_segments(NOW)
    assert run_to_end(steps) is None
    assert present(cleaner.begin([log], NOW)).plan.end_offset > 3


DAMAGES = {
    "magic": (CorruptMessage("magic 7"), True),
    "index": (CorruptIndex("t.index", "it is short", "Delete it"), True),
    "short": (struct.error("unpack_from requires a buffer"), True),
    "disk": (OSError(errno.EIO, "Input/output error"), True),
    "no room": (OSError(errno.EMFILE, "Too many open files"), False),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_log_that_cannot_be_read_is_uncleanable_unless_file_descriptors_ran_out(
    tmp_path, monkeypatch, caplog, damage
):
    """Other logs are cleaned meanwhile."""
    error, is_set_aside = DAMAGES[damage]
    config = replace(CONFIG, max_compaction_lag_ms=10)
    broken, sound = Compacted(tmp_path / "1", config), Compacted(tmp_path / "2", config)
    for each in (broken, sound):
        each.put_twice()

    def find_first_timestamp(self):
        if self.directory == broken.log.directory:
            raise error
        return NOW

    with monkeypatch.context() as patched:
        patched.setattr(Segment, "find_first_timestamp", find_first_timestamp)
        for _ in range(2):
            assert clean(sound.cleaner, sound.log, NOW) in (1, None)
            assert sound.cleaner.begin([broken.log], NOW) is None
    assert bool(broken.log.uncleanable) == is_set_aside
    assert sound.records() == [(1, b"a", b"2")]
    told = [record for record in caplog.records if "compacted" in record.getMessage()]
    assert len(told) == (1 if is_set_aside else 2)
    assert str(error) in caplog.text and not broken.log.is_failed
    assert broken.clean() == (0 if is_set_aside else 1)


def test_cleaning_that_finished_has_synced_the_swapped_files(compacted, monkeypatch):
    synced: list[list[str]] = []
    monkeypatch.setattr(cleaning, "sync_directory", lambda path: synced.append(os.listdir(path)))
    compacted.put_twice()
    assert compacted.clean() == 1
    assert sorted(synced[-1]) == sorted(os.listdir(compacted.directory / "t-0"))
