"""Test appends to the log of one partition, reads of its records, and its limits."""

import errno
import os
import struct

import pytest

from oncelog.runtime.steps import run_to_end
from oncelog.storage.checkpoint import PartitionMetadata
from oncelog.storage.log_read import HEADERS_PER_STEP
from oncelog.storage.partition_log import AppendInfo, UnexpectedAppendOffset
from oncelog.wire.control_record import ControlType
from oncelog.wire.errors import (
    CorruptMessage,
    InconsistentTopicId,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    KafkaStorageError,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
    RecordListTooLarge,
    UnknownProducerId,
)
from oncelog.wire.record_batch import HEADER_BYTES, decode_header, iterate_batches
from oncelog.wire.record_walk import first_record_not_older
from oncelog.wire.records import decode_batch

from ..log_batches import batches_in, end_transaction

NOW_MS = 1_700_000_000_000


def offsets_in(read) -> list[int]:
    return [
        offset
        for _, header in iterate_batches(read.data)
        for offset in range(header.base_offset, header.next_offset)
    ]


def read_all(log):
    data = b"".join(batches_in(log))
    return [
        offset
        for _, header in iterate_batches(data)
        for offset in range(max(header.base_offset, log.log_start_offset), header.next_offset)
    ]


# -- appending as the leader -----------------------------------------------------------------


def test_appended_batch_is_stored_unchanged_except_offset_and_leader_epoch(logs, batch, log):
    logs.lead(log, 3, epoch=4)
    sent = batch(2)
    original = bytes(sent)
    header = decode_header(sent)
    info = log.append_as_leader(sent, header, leader_epoch=5, now_ms=NOW_MS)
    assert info == AppendInfo(3, 4, -1, False)
    stored = bytes(log.read(3, 1 << 20, upper_offset=5).data)
    stored_header = decode_header(stored)
    assert (stored_header.base_offset, stored_header.partition_leader_epoch) == (3, 5)
    assert stored[16:] == original[16:]
    assert log.leader_epochs.entries == ((4, 0), (5, 3))


def test_duplicate_batch_is_answered_with_its_first_offsets_and_not_written(logs, log):
    first = logs.lead(log, 5, producer_id=1, producer_epoch=0, base_sequence=0)
    logs.lead(log, 5, producer_id=1, producer_epoch=0, base_sequence=5)
    again = logs.lead(log, 5, producer_id=1, producer_epoch=0, base_sequence=0)
    assert again == AppendInfo(first.first_offset, first.last_offset, NOW_MS, True)
    assert log.log_end_offset == 10


def test_batch_with_a_sequence_gap_or_fenced_epoch_is_refused_and_changes_no_state(logs, log):
    logs.lead(log, 1, producer_id=1, producer_epoch=3, base_sequence=0)
    size = log.segments.size_bytes
    with pytest.raises(OutOfOrderSequenceNumber):
        logs.lead(log, 1, producer_id=1, producer_epoch=3, base_sequence=2)
    with pytest.raises(InvalidProducerEpoch):
        logs.lead(log, 1, producer_id=1, producer_epoch=2, base_sequence=1)
    assert (log.log_end_offset, log.segments.size_bytes) == (1, size)


def test_log_append_time_replaces_the_timestamps_and_updates_the_checksum(logs):
    log = logs.open(uses_append_time=True)
    info = logs.lead(log, 2, timestamps=[5, 9], now_ms=NOW_MS + 1)
    assert info.log_append_time_ms == NOW_MS + 1
    read = log.read(0, 1 << 20, upper_offset=2)
    header = decode_header(read.data)
    assert header.is_log_append_time
    assert [record.timestamp for record in decode_batch(read.data)] == [NOW_MS + 1] * 2
    assert log.max_timestamp == NOW_MS + 1


@pytest.mark.parametrize("distance", [-1001, 501])
def test_batch_with_a_timestamp_too_far_from_the_clock_is_refused(logs, distance):
    log = logs.open(timestamp_before_max_ms=1000, timestamp_after_max_ms=500)
    logs.lead(log, timestamp=NOW_MS + distance + (1 if distance < 0 else -1))
    logs.lead(log, timestamp=-1)
    with pytest.raises(InvalidTimestamp):
        logs.lead(log, timestamp=NOW_MS + distance)
    assert log.log_end_offset == 2


def test_batch_with_a_base_offset_other_than_zero_is_refused(batch, log):
    sent = batch(1, base_offset=9)
    with pytest.raises(InvalidRecord):
        log.append_as_leader(sent, decode_header(sent), leader_epoch=0, now_ms=NOW_MS)


def test_batch_larger_than_a_segment_is_refused(logs):
    log = logs.open(segment_bytes=200)
    with pytest.raises(RecordListTooLarge):
        logs.lead(log, 1, size=300)


# -- transactions ----------------------------------------------------------------------------


def test_read_committed_reads_end_at_the_first_open_transaction(logs, log):
    logs.lead(log, 2)
    logs.lead_transaction(log, 2)
    logs.lead(log, 1)
    log.advance_high_watermark(5)
    assert (log.high_watermark, log.last_stable_offset) == (5, 2)
    info = end_transaction(log, 7, ControlType.COMMIT, at_ms=NOW_MS)
    assert info == AppendInfo(5, 5, -1, False)
    assert log.last_stable_offset == 2  # the marker is not replicated yet
    log.advance_high_watermark(6)
    assert log.last_stable_offset == 6
    assert log.aborted_transactions.between(0, 6) == []


def test_batch_with_sequences_of_an_aborted_batch_is_refused(logs, batch):
    log = logs.open()
    logs.lead_transaction(log, 2)
    end_transaction(log, 7, ControlType.COMMIT, at_ms=NOW_MS)
    logs.lead_transaction(log, 1, sequence=2)
    assert logs.lead_transaction(log, 1, sequence=2).is_duplicate  # the transaction is open
    assert logs.lead_transaction(log, 2).is_duplicate  # the first transaction was committed
    end_transaction(log, 7, ControlType.ABORT, at_ms=NOW_MS)
    other = batch(1, producer_id=7, producer_epoch=0, base_sequence=2, transactional=True)
    with pytest.raises(UnknownProducerId, match="at offset 3, in an aborted"):
        logs.lead_transaction(log, 1, sequence=2)
    assert log.find_duplicate(decode_header(other)) is None
    assert logs.lead_transaction(log, 2).is_duplicate
    log.close()
    log = logs.open()
    assert logs.lead_transaction(log, 1, sequence=3).first_offset == 5
    with pytest.raises(UnknownProducerId, match="at offset 3, in an aborted"):
        logs.lead_transaction(log, 1, sequence=2)
    assert log.find_duplicate(decode_header(other)) is None


def test_aborted_transaction_is_listed_for_overlapping_reads(logs):
    log = logs.open(segment_bytes=400)
    for round_number in range(6):
        logs.lead_transaction(log, 2, producer_epoch=round_number)
        logs.lead_transaction(log, 1, producer_id=8, producer_epoch=round_number)
        end_transaction(log, 7, ControlType.ABORT, producer_epoch=round_number, at_ms=NOW_MS)
        end_transaction(log, 8, ControlType.COMMIT, producer_epoch=round_number, at_ms=NOW_MS)
    assert len(log.segments) > 2
    log.advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset == 30
    assert log.aborted_transactions.between(0, 30) == [(7, 5 * n) for n in range(6)]
    assert log.aborted_transactions.between(4, 10) == [(7, 5)]
    assert log.aborted_transactions.between(12, 30) == [(7, 10), (7, 15), (7, 20), (7, 25)]


# -- appending as a follower -----------------------------------------------------------------


def test_fetch_of_aborted_transactions_without_a_free_descriptor_fails_no_log(
    log, logs, monkeypatch
):
    """If the log failed, the broker would not lead its partition again until a restart."""
    logs.lead_transaction(log)
    end_transaction(log, 7, ControlType.ABORT, at_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)

    def lacking(*_, **__):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", lacking)
        with pytest.raises(KafkaStorageError):
            log.aborted_transactions.between(0, 2)
    assert not log.is_failed
    assert log.aborted_transactions.between(0, 2) == [(7, 0)]


def test_follower_log_files_equal_the_leader_files_however_batches_arrive(tmp_path, logs):
    leader = logs.open(segment_bytes=600, index_interval_bytes=100)
    for n in range(40):
        logs.lead(leader, 1 + n % 3, epoch=n // 15, timestamp=NOW_MS + n % 7)
    follower_logs = type(logs)(tmp_path / "follower")
    follower = follower_logs.open(segment_bytes=600, index_interval_bytes=100)
    for max_bytes in [100, 1, 1000, 350] * 40:
        read = leader.read(follower.log_end_offset, max_bytes, upper_offset=leader.log_end_offset)
        follower.append_as_follower(read.data, now_ms=NOW_MS)
    assert follower.log_end_offset == leader.log_end_offset
    leader.close()
    follower.close()
    names = sorted(path.name for path in logs.directory.iterdir())
    assert names == sorted(path.name for path in follower_logs.directory.iterdir())
    for name in names:
        ours, theirs = logs.directory / name, follower_logs.directory / name
        assert ours.read_bytes() == theirs.read_bytes(), name


def test_follower_append_of_many_batches_rolls_segments_at_segment_bytes(tmp_path, logs, batch):
    data = b"".join(bytes(batch(2, base_offset=2 * n)) for n in range(20))
    log = logs.open(segment_bytes=300)
    log.append_as_follower(data, now_ms=NOW_MS)
    assert log.log_end_offset == 40
    assert all(segment.size_bytes <= 300 for segment in log.segments)
    assert read_all(log) == list(range(40))


def test_follower_append_of_a_damaged_answer_is_refused_as_a_whole(batch, log):
    data = bytearray(bytes(batch(2)) + bytes(batch(2, base_offset=2)))
    data[-1] ^= 1
    with pytest.raises(CorruptMessage):
        log.append_as_follower(data, now_ms=NOW_MS)
    assert (log.log_end_offset, log.segments.size_bytes) == (0, 0)


def test_follower_leaves_a_partial_last_batch_out_and_refuses_present_batches(batch, log):
    data = bytes(batch(2)) + bytes(batch(2, base_offset=2))[:-3]
    log.append_as_follower(data, now_ms=NOW_MS)
    assert log.log_end_offset == 2
    with pytest.raises(UnexpectedAppendOffset):
        log.append_as_follower(bytes(batch(2)), now_ms=NOW_MS)


def test_follower_that_starts_at_an_offset_inside_a_batch_appends_the_whole_batch(batch, log):
    log.truncation.truncate_fully_and_start_at(5)
    log.append_as_follower(bytes(batch(10)), now_ms=NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (5, 10)
    log.advance_high_watermark(10)
    assert log.read(5, 1000, upper_offset=10).next_offset == 10


# -- reading ---------------------------------------------------------------------------------


def test_reads_return_whole_batches_within_their_size_limits(logs):
    log = logs.open(segment_bytes=1000, index_interval_bytes=150)
    for n in range(30):
        logs.lead(log, 1 + n % 4)
    end = log.log_end_offset
    for offset in range(end):
        for upper in (offset + 1, end):
            for max_bytes in (0, 1, 90, 400, 10_000):
                read = log.read(offset, max_bytes, upper_offset=upper)
                headers = [header for _, header in iterate_batches(read.data)]
                assert sum(header.size_bytes for header in headers) == len(read.data)
                if not headers:  # the batch that holds `offset` reaches above `upper`
                    assert read.next_offset == offset and upper < end
                    continue
                assert headers[0].base_offset <= offset < headers[0].next_offset
                assert headers[-1].next_offset == read.next_offset <= upper
                assert len(headers) == 1 or len(read.data) <= max_bytes
            assert not log.read(offset, 10, upper_offset=end, min_one_batch=False).data


def test_read_at_the_tail_needs_no_index(logs, monkeypatch, log):
    logs.lead(log, 3)
    at = log.read(0, 1000, upper_offset=3).next_offset
    monkeypatch.setattr(type(log.segments.active), "position_of", None)
    for _ in range(10):
        logs.lead(log, 2)
        read = log.read(at, 1000, upper_offset=log.log_end_offset)
        assert offsets_in(read) == [at, at + 1]
        at = read.next_offset


def test_read_outside_the_log_is_refused(logs, log):
    logs.lead(log, 4)
    log.advance_high_watermark(4)
    log.retention.advance_log_start_offset(2)
    for offset in (1, 5):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100, upper_offset=4)
    assert not log.read(4, 100, upper_offset=4).data


def by_time(log, timestamp_ms, from_offset=0):
    """Return (offset, timestamp) of the first record from `timestamp_ms` on, or None."""
    step = from_offset
    while step is not None:
        step = log.batch_not_older(timestamp_ms, step)
        if not isinstance(step, int | None):
            header, data = step
            records = data[HEADER_BYTES:]
            search = first_record_not_older(bytes(records), header, timestamp_ms, from_offset)
            if (found := run_to_end(search)) is not None:
                return found
            step = header.next_offset
    return None


def test_records_are_found_by_their_timestamp(logs):
    log = logs.open(segment_bytes=300, index_interval_bytes=50)
    times = [10, 20, 15, 40, 30, 50, 50, 60]
    for n in range(0, 8, 2):
        logs.lead(log, 2, timestamps=times[n : n + 2], epoch=n)
    assert len(log.segments) > 1
    for wanted in range(5, 70):
        expected = next((n for n, time in enumerate(times) if time >= wanted), None)
        found = by_time(log, wanted)
        assert found == (None if expected is None else (expected, times[expected]))
    assert log.max_timestamp == 60
    assert by_time(log, 5, from_offset=3) == (3, 40)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("entry", [(55, 3), (60, 3 + 64)])
def test_damaged_last_time_index_entry_is_repaired_when_the_log_is_opened(logs, entry, is_clean):
    """With a lower last timestamp in the time index, searches would skip the whole segment."""
    log = logs.open(index_interval_bytes=50)
    for times in ([10, 20], [60, 15], [40, 30], [50, 50]):
        logs.lead(log, 2, timestamps=times)
    log.close()
    path = logs.directory / f"{0:020d}.timeindex"
    assert path.read_bytes()[-12:] == struct.pack(">qi", 60, 3)
    path.write_bytes(path.read_bytes()[:-12] + struct.pack(">qi", *entry))
    again = logs.open(index_interval_bytes=50, clean_shutdown=is_clean)
    assert by_time(again, 60) == (2, 60)


def test_empty_log_has_no_offset_for_a_timestamp(log):
    assert by_time(log, 0) is None
    assert log.max_timestamp == -1


def test_timestamp_search_reads_a_few_headers_in_a_step(logs):
    """A later batch may have an older timestamp, so a search may have to read many headers."""
    log = logs.open(index_interval_bytes=1 << 20)
    logs.lead(log, 1, timestamps=[90])
    count = 3 * HEADERS_PER_STEP
    for _ in range(count):
        logs.lead(log, 1, timestamps=[10])
    steps = [1]
    while isinstance(steps[-1], int):
        steps.append(log.batch_not_older(50, steps[-1]))
    assert steps == [1, *(1 + n * HEADERS_PER_STEP for n in (1, 2, 3)), None]


# -- limits ----------------------------------------------------------------------------------


def test_high_watermark_only_rises_and_never_above_the_log_end(logs, log):
    logs.lead(log, 4)
    assert log.advance_high_watermark(3)
    assert not log.advance_high_watermark(2)
    assert log.advance_high_watermark(99)
    assert log.high_watermark == 4


def test_delete_records_above_the_high_watermark_is_refused(logs, log):
    logs.lead(log, 4)
    log.advance_high_watermark(2)
    with pytest.raises(OffsetOutOfRange):
        log.retention.advance_log_start_offset(3)
    log.retention.advance_log_start_offset(2)
    assert log.log_start_offset == 2


def test_leader_epoch_end_in_a_log_is_the_start_of_the_next_epoch(logs, log):
    logs.lead(log, 4, epoch=1)
    logs.lead(log, 2, epoch=3)
    log.assign_leader_epoch(5)
    assert log.end_offset_for_epoch(1) == (1, 4)
    assert log.end_offset_for_epoch(2) == (1, 4)
    assert log.end_offset_for_epoch(3) == (3, 6)
    assert log.end_offset_for_epoch(5) == (5, 6)
    assert log.end_offset_for_epoch(6) == (-1, -1)
    assert log.latest_epoch == 5
    log.truncation.truncate_to(99)  # nothing to cut, but the epoch was never written in
    assert log.latest_epoch == 3


def test_log_directory_with_another_topic_id_is_refused(logs):
    logs.open().close()
    with pytest.raises(InconsistentTopicId):
        logs.open(topic_id=bytes(16))


@pytest.mark.parametrize("at", [0, 19, 30, 55])
def test_log_directory_with_batches_and_damaged_metadata_is_refused(logs, at):
    """The metadata file may have had the id of a deleted topic of the same name."""
    log = logs.open()
    logs.lead(log)
    log.close()
    path = logs.directory / "partition.metadata"
    content = bytearray(path.read_bytes())
    content[at] ^= 2
    path.write_bytes(content)
    with pytest.raises(KafkaStorageError, match=r"partition\.metadata"):
        logs.open(topic_id=bytes(16))
    assert path.read_bytes() == content


@pytest.mark.parametrize("damaged", [(0,), (19, 30), (8, 33, 44, 51)])
def test_log_directory_with_slightly_damaged_metadata_of_this_topic_is_opened(logs, damaged):
    """A refusal would keep a partition with one replica offline until an operator's repair."""
    log = logs.open()
    logs.lead(log)
    log.close()
    path = logs.directory / "partition.metadata"
    content = bytearray(path.read_bytes())
    for at in damaged:
        content[at] ^= 2
    path.write_bytes(content)
    log = logs.open()
    assert log.log_end_offset == 1
    log.close()
    assert PartitionMetadata.read(path.parent) == PartitionMetadata(log.topic_id)


@pytest.mark.parametrize("left", [None, b"", bytes(60), b"version: 0\ntopic_id: A"])
@pytest.mark.parametrize(
    ("options", "is_opened"),
    [
        ({"machine_restarted": True}, False),
        ({"machine_restarted": True, "recovery_point": 1}, True),  # a flush syncs the topic id, too
        ({}, True),
    ],
)
def test_unflushed_batches_that_lost_their_topic_id_in_a_power_cut_are_refused(
    logs, left, options, is_opened
):
    """The batches may belong to a deleted topic of the same name."""
    log = logs.open()
    logs.lead(log)
    log.close()
    path = logs.directory / "partition.metadata"
    path.unlink()
    if left is not None:
        path.write_bytes(left)
    if not is_opened:
        with pytest.raises(InconsistentTopicId, match="never synced"):
            logs.open(**options)
    else:
        log = logs.open(**options)
        assert log.log_end_offset == 1
        log.close()


@pytest.mark.parametrize("left", [b"", bytes(60), b"version: 0\ntopic_id: A"])
def test_log_directory_with_metadata_that_was_never_synced_is_accepted(logs, left):
    logs.open().close()
    path = logs.directory / "partition.metadata"
    path.write_bytes(left)
    logs.open().close()
    assert b"crc32c" in path.read_bytes()


# -- failure ---------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["log.append.before-write", "log.append.after-write"])
def test_write_that_fails_marks_the_log_as_failed_and_changes_no_offset(logs, point):
    armed = []

    def fault_point(name):
        if armed and name == point:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    log = logs.open(fault_point=fault_point)
    logs.lead(log, 3, producer_id=1, producer_epoch=0, base_sequence=0)
    armed.append(True)
    with pytest.raises(KafkaStorageError, match="Input/output error"):
        logs.lead(log, 3, producer_id=1, producer_epoch=0, base_sequence=3)
    assert log.is_failed
    assert log.log_end_offset == log.producer_state.end_offset == 3
    armed.clear()
    for attempt in (
        lambda: logs.lead(log),
        lambda: log.read(0, 100, upper_offset=3),
        lambda: log.append_as_follower(b"", now_ms=NOW_MS),
        log.flushing.flush,
        lambda: log.truncation.truncate_to(1),
        lambda: log.roll(NOW_MS),
    ):
        with pytest.raises(KafkaStorageError):
            attempt()
    log.close()
    again = logs.open()
    assert again.log_end_offset in (3, 6)
    info = logs.lead(again, 3, producer_id=1, producer_epoch=0, base_sequence=3)
    assert info[:2] == (3, 5)
    assert read_all(again) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("flipped", [(0, 9), (0, 1), (4, 1), (4, 9), (4, 15), (4, 31)])
def test_index_with_a_flipped_bit_hides_no_batch_from_readers(logs, flipped):
    """A reader gets the right batches or an error, and does not wait forever."""
    log = logs.open(index_interval_bytes=1)
    for _ in range(40):
        logs.lead(log, 3)
    log.segments.active.write_out()
    path = log.segments.active.offset_index.path
    column, bit = flipped
    content = bytearray(path.read_bytes())
    for entry in range(0, len(content), 24):
        at = entry + column
        value = int.from_bytes(content[at : at + 4], "big") ^ (1 << bit)
        content[at : at + 4] = value.to_bytes(4, "big")
    path.write_bytes(content)
    log.segments.drop_cached_reads()
    errors = 0
    for offset in range(120):
        try:
            read = log.read(offset, 1, upper_offset=120)
        except (CorruptMessage, KafkaStorageError):
            errors += 1
            log.segments.drop_cached_reads()
            continue
        header = decode_header(read.data)
        assert header.base_offset <= offset <= header.last_offset
        log.segments.drop_cached_reads()
    assert errors or flipped == (0, 9), "an entry for a larger offset leads to an earlier batch"


def test_new_leader_epoch_writes_no_file(logs, log):
    """After a broker's death hundreds of partitions get a new leader epoch together."""
    logs.lead(log, epoch=3)
    log.flushing.flush()
    saved = (log.directory / "leader-epoch-checkpoint").read_text()
    log.assign_leader_epoch(4)
    log.assign_leader_epoch(5)
    assert (log.directory / "leader-epoch-checkpoint").read_text() == saved
    logs.lead(log, epoch=5)
    assert logs.open().leader_epochs.entries == ((3, 0), (5, 1))
    log.roll(0)
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n2\n3 0\n5 1\n"


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_reader_of_a_shortened_index_gets_a_storage_error_and_the_log_continues(logs, suffix):
    """A struct.error in the reader would also end the fetches of all other partitions."""
    log = logs.open(index_interval_bytes=60, segment_bytes=2000)
    for n in range(40):
        logs.lead_transaction(log, sequence=n)
        end_transaction(log, 7, ControlType.ABORT, at_ms=NOW_MS + n)
    log.advance_high_watermark(log.log_end_offset)
    segment = list(log.segments)[1]
    path = segment.paths()[(".index", ".timeindex", ".txnindex").index(suffix) + 1]
    content = path.read_bytes()
    reads = {
        ".index": lambda: log.read(segment.base_offset + 9, 100, upper_offset=80),
        ".timeindex": lambda: log.batch_not_older(NOW_MS + 12, segment.base_offset),
        ".txnindex": lambda: log.aborted_transactions.between(segment.base_offset, 80),
    }
    expected = reads[suffix]()
    log.segments.drop_cached_reads()
    os.truncate(path, 0)
    with pytest.raises(KafkaStorageError, match="t-0"):
        reads[suffix]()
    assert not log.is_failed
    path.write_bytes(content)
    assert reads[suffix]() == expected
