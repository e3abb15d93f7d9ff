"""Test when a log rolls, deletes segments, truncates and flushes."""

import os
import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import pytest

from oncelog.storage.log_config import LogConfig
from oncelog.storage.segments.retention import SEGMENTS_AT_ONCE
from oncelog.wire.errors import KafkaStorageError
from oncelog.wire.record_batch import decode_header

NOW_MS = 1_700_000_000_000


def bases(log):
    return [segment.base_offset for segment in log.segments]


def names(log, pattern="*.log"):
    return sorted(path.name for path in log.directory.glob(pattern))


# -- rolling ---------------------------------------------------------------------------------


def test_segment_roll_happens_before_segment_bytes_is_exceeded(logs, batch):
    size = len(batch())
    log = logs.open(segment_bytes=3 * size)
    for _ in range(7):
        logs.lead(log)
    assert bases(log) == [0, 3, 6]
    assert names(log) == [f"{base:020d}.log" for base in (0, 3, 6)]
    assert names(log, "*.snapshot") == [f"{base:020d}.snapshot" for base in (3, 6)]


def test_segment_rolls_by_the_timestamps_of_its_records(logs):
    log = logs.open(segment_ms=1000)
    logs.lead(log, timestamp=NOW_MS)
    logs.lead(log, timestamp=NOW_MS + 1000)
    logs.lead(log, timestamp=NOW_MS + 1001)
    assert bases(log) == [0, 2]


def test_segment_without_timestamps_rolls_by_the_clock(logs):
    log = logs.open(segment_ms=1000)
    logs.lead(log, timestamp=-1, now_ms=NOW_MS)
    logs.lead(log, timestamp=-1, now_ms=NOW_MS + 1000)
    logs.lead(log, timestamp=-1, now_ms=NOW_MS + 1001)
    assert bases(log) == [0, 2]


def test_segment_roll_jitter_only_makes_rolls_earlier(logs):
    config = LogConfig(segment_ms=10_000, segment_jitter_ms=9_000)
    log = logs.open(config=config)
    waits = []
    for _ in range(5):
        logs.lead(log)
        active = log.segments.active
        waits.append(
            next(
                wait
                for wait in range(10_002)
                if active.should_roll(config, 1, NOW_MS + wait, log.log_end_offset, NOW_MS)
            )
        )
        log.roll(NOW_MS)
    assert len(set(waits)) > 2
    assert all(1_000 <= wait <= 10_001 for wait in waits)


def test_segment_rolls_when_an_index_is_full(logs):
    log = logs.open(segment_index_bytes=36, index_interval_bytes=0)
    for n in range(8):
        logs.lead(log, timestamp=NOW_MS + n)
    # The time index holds three entries, one of them kept for the close; the first batch has none.
    assert bases(log) == [0, 3, 6]
    for segment in log.segments:
        assert segment.time_index.size_bytes <= 36


def test_segment_rolls_when_an_offset_does_not_fit_into_31_bits(logs, batch, log):
    far = 2**31 + 5
    log.append_as_follower(bytes(batch(2)), now_ms=NOW_MS)
    log.append_as_follower(bytes(batch(2, base_offset=far)), now_ms=NOW_MS)
    assert bases(log) == [0, far]
    assert log.read(2, 1000, upper_offset=far + 2).next_offset == far + 2
    wide = logs.__class__(logs.directory.parent / "empty").open()
    wide.append_as_follower(bytes(batch(2, base_offset=far)), now_ms=NOW_MS)
    assert bases(wide) == [far]


def test_roll_of_an_empty_segment_adds_no_segment(logs, log):
    log.roll(NOW_MS)
    assert bases(log) == [0]
    logs.lead(log)
    log.roll(NOW_MS)
    log.roll(NOW_MS)
    assert bases(log) == [0, 1]


def test_preallocated_segment_space_is_released_at_a_roll_and_a_close(logs, batch):
    size = len(batch())
    log = logs.open(segment_bytes=5000, preallocate=True)
    logs.lead(log)
    log.roll(NOW_MS)
    logs.lead(log)
    first, second = (logs.directory / name for name in names(log))
    assert (first.stat().st_size, second.stat().st_size) == (size, 5000)
    log.close()
    assert second.stat().st_size == size
    log = logs.open(clean_shutdown=True, preallocate=True)
    assert (log.log_end_offset, log.segments.size_bytes) == (2, 2 * size)


def test_log_with_preallocated_space_is_recovered_after_a_kill(logs, batch):
    log = logs.open(segment_bytes=5000, preallocate=True)
    logs.lead(log, 3)
    again = logs.open(segment_bytes=5000)
    assert (again.log_end_offset, again.segments.size_bytes) == (3, len(batch(3)))


# -- retention -------------------------------------------------------------------------------


def filled(logs, batches=6, **options):
    """Return a log with one batch in each segment, and an empty active segment."""
    log = logs.open(**options)
    for n in range(batches):
        logs.lead(log, timestamp=NOW_MS + n, producer_id=1, producer_epoch=0, base_sequence=n)
        log.roll(NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    return log


def test_retention_by_size_keeps_at_least_retention_bytes(logs, batch):
    size = len(batch())
    log = filled(logs, retention_bytes=2 * size + 1, retention_ms=-1)
    assert log.retention.delete_old_segments(NOW_MS) == 3
    assert bases(log) == [3, 4, 5, 6]
    assert log.log_start_offset == 3
    assert log.retention.delete_old_segments(NOW_MS) == 0


def test_retention_by_time_uses_the_newest_record_of_a_segment(logs):
    log = filled(logs, retention_ms=1000)
    assert log.retention.delete_old_segments(NOW_MS + 1000) == 0
    assert log.retention.delete_old_segments(NOW_MS + 1003) == 3
    assert log.log_start_offset == 3
    assert log.leader_epochs.entries == ((0, 3),)


@pytest.mark.parametrize("reason", ["size", "age", "log start"])
def test_many_expired_segments_are_deleted_a_few_at_a_time(logs, reason):
    log = filled(logs, 60, retention_ms=-1)
    if reason == "log start":
        log.retention.advance_log_start_offset(50)
    else:
        limits = {"retention_bytes": 0} if reason == "size" else {"retention_ms": 0}
        log.config = replace(log.config, **limits)
    counts = [len(log.segments)]
    for _ in (steps := log.retention.deleting_old_segments(NOW_MS + 1000)):
        assert log.segments.first.base_offset <= log.log_start_offset
        counts.append(len(log.segments))
        logs.lead(log, producer_id=1, producer_epoch=0, base_sequence=log.log_end_offset)
    assert steps.gi_frame is None
    assert max(before - after for before, after in pairwise(counts)) <= SEGMENTS_AT_ONCE
    assert log.log_start_offset == (50 if reason == "log start" else 60)
    assert log.log_end_offset == 60 + len(counts) - 1
    assert len(names(log)) == len(log.segments)
    assert logs.open().log_end_offset == log.log_end_offset


@pytest.mark.parametrize("reason", ["size", "age"])
def test_retention_during_appends_of_expired_records_ends(logs, reason):
    """A retention that never ended would delay the retention of other logs.

    MirrorMaker may produce records that are already expired.
    """
    limits = {"retention_bytes": 0} if reason == "size" else {"retention_ms": 0}
    log = filled(logs, 20, **limits)
    steps = log.retention.deleting_old_segments(NOW_MS + 1000)
    for _ in range(20):
        if next(steps, "end") == "end":
            break
        logs.lead(log, producer_id=1, producer_epoch=0, base_sequence=log.log_end_offset)
        log.advance_high_watermark(log.log_end_offset)
    assert steps.gi_frame is None
    assert log.log_start_offset == 20
    log.retention.delete_old_segments(NOW_MS + 1000)
    assert log.log_start_offset == log.log_end_offset > 20


def test_retention_of_a_log_that_is_reset_meanwhile_ends(logs):
    log = filled(logs, 60, retention_ms=0)
    steps = log.retention.deleting_old_segments(NOW_MS + 1000)
    next(steps)
    log.truncation.truncate_fully_and_start_at(500)
    logs.lead(log, timestamp=NOW_MS + 1000)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == SEGMENTS_AT_ONCE
    assert (log.log_start_offset, log.log_end_offset) == (500, 501)


def test_retention_of_a_log_that_is_deleted_meanwhile_raises_a_storage_error(logs):
    log = filled(logs, 60, retention_ms=0)
    steps = log.retention.deleting_old_segments(NOW_MS + 1000)
    next(steps)
    log.local.retire()
    with pytest.raises(KafkaStorageError):
        next(steps)


def test_expired_active_segment_is_rolled_and_deleted(logs):
    log = logs.open(retention_ms=1000)
    logs.lead(log, 5)
    log.advance_high_watermark(5)
    assert log.retention.delete_old_segments(NOW_MS + 1001) == 1
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (5, 5, [5])
    assert log.retention.delete_old_segments(NOW_MS + 9999) == 0


# -- a clock that was advanced -------------------------------------------------------------------

ADVANCED_MS = 7_000


def advanced_at(at_ms):
    return lambda moment_ms: ADVANCED_MS if moment_ms <= at_ms else 0


def written(logs, *timestamps, retention_ms):
    """Return a log with one record in each segment, in files last written 1 ms after NOW_MS."""
    log = logs.open(retention_ms=retention_ms)
    for timestamp in timestamps:
        logs.lead(log, timestamp=timestamp)
        log.roll(NOW_MS)
    log.advance_high_watermark(len(timestamps))
    for path in log.directory.glob("*.log"):
        os.utime(path, ns=(0, (NOW_MS + 1) * 1_000_000))
    return log


def test_retention_after_a_clock_advance_treats_only_earlier_records_as_older(logs):
    log = written(logs, NOW_MS, NOW_MS + 1, retention_ms=ADVANCED_MS)
    log.local.advanced_since_ms = advanced_at(NOW_MS)
    assert log.retention.delete_old_segments(NOW_MS) == 0
    assert log.retention.delete_old_segments(NOW_MS + 1) == 1
    assert log.retention.delete_old_segments(NOW_MS + 1000) == 0
    assert log.log_start_offset == 1


@pytest.mark.parametrize("timestamp", [NOW_MS + 500, -1])
def test_retention_of_records_without_a_usable_timestamp_uses_the_last_write_of_their_file(
    logs, timestamp
):
    log = written(logs, timestamp, retention_ms=ADVANCED_MS - 500)
    for at_ms, count in ((NOW_MS, 0), (NOW_MS + 1, 1)):
        log.local.advanced_since_ms = advanced_at(at_ms)
        assert log.retention.delete_old_segments(NOW_MS + 2) == count


@pytest.mark.parametrize("timestamps", [(NOW_MS, NOW_MS + 1), (-1, -1)])
def test_segment_rolls_after_a_clock_advance_beyond_segment_ms(logs, timestamps):
    log = logs.open(segment_ms=ADVANCED_MS)
    before, after = timestamps
    logs.lead(log, timestamp=before, now_ms=NOW_MS)
    logs.lead(log, timestamp=before, now_ms=NOW_MS)
    assert bases(log) == [0]
    log.local.advanced_since_ms = advanced_at(NOW_MS)
    logs.lead(log, timestamp=after, now_ms=NOW_MS + 1)
    logs.lead(log, timestamp=after, now_ms=NOW_MS + 1)
    assert bases(log) == [0, 2]


def test_retention_deletes_no_segment_above_the_high_watermark(logs):
    log = logs.open(retention_ms=0, retention_bytes=0)
    for _ in range(3):
        logs.lead(log)
        log.roll(NOW_MS)
    log.advance_high_watermark(1)
    assert log.retention.delete_old_segments(NOW_MS + 9999) == 1
    assert bases(log) == [1, 2, 3]


def test_retention_of_a_compacted_log_deletes_only_segments_below_its_start(logs):
    log = filled(logs, retention_ms=0, is_deleted_by_retention=False, is_compacted=True)
    assert log.retention.delete_old_segments(NOW_MS + 9999) == 0
    log.retention.advance_log_start_offset(3)
    assert log.retention.delete_old_segments(NOW_MS + 9999) == 3
    assert bases(log) == [3, 4, 5, 6]


def test_deleted_segment_files_are_renamed_immediately_and_removed_after_the_delay(logs):
    log = filled(logs, retention_ms=1000, file_delete_delay_ms=500)
    log.retention.delete_old_segments(NOW_MS + 1003)
    assert names(log) == [f"{base:020d}.log" for base in (3, 4, 5, 6)]
    assert len(names(log, "*.log.deleted")) == 3
    assert names(log, "*.snapshot") == [f"{base:020d}.snapshot" for base in (3, 4, 5, 6)]
    assert log.retention.purge_deleted_files(NOW_MS + 1502) == 0
    assert len(names(log, "0*.deleted")) == 9
    assert log.retention.purge_deleted_files(NOW_MS + 1503) == 9
    assert names(log, "0*.deleted") == []


def test_deleted_segment_files_left_by_a_stop_are_removed_at_the_restart(logs):
    log = filled(logs, retention_ms=1000)
    log.retention.delete_old_segments(NOW_MS + 1003)
    again = logs.open(log_start_offset=3)
    assert names(again, "0*.deleted") == []
    assert (again.log_start_offset, again.log_end_offset) == (3, 6)


def test_reader_that_holds_a_segment_can_read_it_after_its_files_are_removed(logs):
    log = filled(logs, retention_ms=0, file_delete_delay_ms=0)
    oldest = log.segments.first
    log.retention.delete_old_segments(NOW_MS + 9999)
    log.retention.purge_deleted_files(NOW_MS + 9999)
    assert names(log, "0*.deleted") == []
    assert oldest.file.read(0, 10_000)


# -- truncation ------------------------------------------------------------------------------


def test_truncation_restores_leader_epochs_producers_and_the_high_watermark(logs):
    log = logs.open(segment_bytes=300)
    for n in range(10):
        logs.lead(log, 2, epoch=n // 3, producer_id=1, producer_epoch=0, base_sequence=2 * n)
    log.advance_high_watermark(20)
    log.truncation.truncate_to(9)  # inside the batch 8-9, which is removed as a whole
    assert log.log_end_offset == log.high_watermark == 8
    assert log.leader_epochs.entries == ((0, 0), (1, 6))
    assert log.producer_state.entry(1).next_sequence == 8
    assert max(log.local.snapshots.offsets) <= 8
    info = logs.lead(log, 2, epoch=7, producer_id=1, producer_epoch=0, base_sequence=8)
    assert info[:2] == (8, 9)
    again = logs.lead(log, 2, epoch=7, producer_id=1, producer_epoch=0, base_sequence=0)
    assert again.is_duplicate and again.first_offset == 0


def test_reader_above_a_truncation_reads_the_new_batches(logs, log):
    for _ in range(5):
        logs.lead(log, 2)
    assert log.read(0, 1 << 20, upper_offset=8).next_offset == 8  # the next read would start at 8
    log.truncation.truncate_to(4)
    logs.lead(log, 3)
    logs.lead(log, 3, size=50)
    read = log.read(8, 1 << 20, upper_offset=10)
    assert decode_header(read.data).base_offset == 7


def test_truncation_at_a_segment_base_offset_leaves_an_empty_usable_segment(logs):
    log = filled(logs)
    log.truncation.truncate_to(3)
    assert bases(log) == [0, 1, 2, 3]
    logs.lead(log, 2)
    assert log.read(3, 1000, upper_offset=5).next_offset == 5


def test_truncation_below_the_log_start_resets_the_log(logs):
    log = filled(logs, retention_ms=1000)
    log.retention.delete_old_segments(NOW_MS + 1003)
    log.truncation.truncate_to(1)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (1, 1, 1)
    assert bases(log) == [1]


def test_log_can_be_reset_to_a_start_offset_above_its_end(logs):
    log = filled(logs)
    log.truncation.truncate_fully_and_start_at(1000)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (1000, 1000, 1000)
    assert names(log, "*.snapshot") == []
    assert log.latest_epoch is None and len(log.producer_state) == 0
    logs.lead(log, 2, epoch=9)
    again = logs.open(log_start_offset=1000)
    assert (again.log_start_offset, again.log_end_offset) == (1000, 1002)


# -- flushing --------------------------------------------------------------------------------


def test_flush_is_due_by_messages_by_time_and_after_a_roll(logs):
    log = logs.open(flush_messages=3, flush_ms=100)
    logs.lead(log, 2)
    assert not log.flushing.is_needed(NOW_MS + 99)
    assert log.flushing.is_needed(NOW_MS + 100)
    logs.lead(log, 1)
    assert log.flushing.is_needed(NOW_MS)
    log.flushing.flush()
    assert log.flushing.recovery_point == 3
    assert not log.flushing.is_needed(NOW_MS + 1000)
    log.config = LogConfig()
    logs.lead(log)
    assert not log.flushing.is_needed(NOW_MS + 10**9)
    log.roll(NOW_MS)
    assert log.flushing.is_needed(NOW_MS)


def test_flush_overtaken_by_a_truncation_raises_no_recovery_point_above_the_truncation(logs):
    inside, go_on = threading.Event(), threading.Event()

    def fault_point(name):
        if name == "log.flush.before-fsync":
            inside.set()
            go_on.wait(10)

    log = logs.open(fault_point=fault_point)
    for _ in range(5):
        logs.lead(log)
    flushing = threading.Thread(target=log.flushing.flush)
    flushing.start()
    inside.wait(10)
    log.truncation.truncate_to(2)
    logs.lead(log, 9)
    go_on.set()
    flushing.join()
    assert log.flushing.recovery_point <= 2
    log.flushing.flush()
    assert log.flushing.recovery_point == 11


def test_appends_rolls_and_deletions_continue_during_a_flush_in_a_thread(logs):
    """Flush jobs are created and completed in the thread of the log, and run in another thread."""
    log = logs.open(segment_bytes=500, retention_bytes=2000, file_delete_delay_ms=0)
    flushes = 0
    with ThreadPoolExecutor(1) as executor:
        job, running, n = log.flushing.job(), None, 0
        while flushes < 6 or n < 600:  # enough for any disk
            running = running or executor.submit(job.run)
            logs.lead(log, timestamp=NOW_MS + n)
            log.advance_high_watermark(log.log_end_offset)
            if n % 10 == 0:
                log.retention.delete_old_segments(NOW_MS + n)
                log.retention.purge_deleted_files(NOW_MS + n)
            if n % 97 == 96:
                log.truncation.truncate_to(log.log_end_offset - 2)
            if running.done():
                log.flushing.flushed(job, running.exception())
                job, running, flushes = log.flushing.job(), None, flushes + 1
            n += 1
    log.flushing.flush()
    assert log.flushing.recovery_point == log.log_end_offset
    end = log.log_end_offset
    again = logs.open(
        log_start_offset=log.log_start_offset, recovery_point=log.flushing.recovery_point
    )
    assert again.log_end_offset == end


def test_write_back_covers_only_bytes_since_the_last_write_back(logs, monkeypatch):
    written_out = []
    monkeypatch.setattr(
        "oncelog.storage.segments.log_file._sync_file_range", lambda *args: written_out.append(args)
    )
    log = logs.open()
    logs.lead(log, size=500)
    first_bytes = log.flushing.unwritten_bytes
    log.flushing.write_back_job()()
    assert log.flushing.unwritten_bytes == 0
    logs.lead(log, size=500)
    job = log.flushing.write_back_job()
    logs.lead(log, size=500)
    job()
    assert [args[1:3] for args in written_out] == [(0, first_bytes), (first_bytes, first_bytes)]
    assert log.flushing.unwritten_bytes == first_bytes
    monkeypatch.undo()
    log.flushing.write_back_job()()


def test_flush_that_fails_marks_the_log_as_failed(logs, monkeypatch, log):
    logs.lead(log)

    def fail(fd):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(KafkaStorageError, match="Input/output"):
        log.flushing.flush()
    assert log.is_failed and log.flushing.recovery_point == 0


def test_append_beyond_the_file_size_limit_fails_the_log_and_leaves_no_bytes(logs, batch, log):
    """With a file size limit (RLIMIT_FSIZE) the kernel may write the first bytes of a batch."""
    logs.lead(log, 3, producer_id=1, producer_epoch=0, base_sequence=0)
    size = log.segments.size_bytes
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, hard))
    try:
        with pytest.raises(KafkaStorageError, match="File too large"):
            logs.lead(log, 3, producer_id=1, producer_epoch=0, base_sequence=3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert log.is_failed and log.log_end_offset == 3
    assert log.segments.active.file.path.stat().st_size == size
    again = logs.open()
    assert (again.log_end_offset, again.segments.size_bytes) == (3, size)
    info = logs.lead(again, 3, producer_id=1, producer_epoch=0, base_sequence=3)
    assert info[:2] == (3, 5) and not info.is_duplicate
