"""Test that readers of a log with any damaged byte get the written batches or an error."""

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from oncelog.storage import log_read
from oncelog.storage.corrupt_file import LOG_TROUBLE
from oncelog.storage.log_config import LogConfig
from oncelog.storage.partition_log import PartitionLog, TimedBatch
from oncelog.storage.segments import read_checks
from oncelog.storage.segments.damage import remove_derived_files
from oncelog.storage.segments.log_file import LogFile
from oncelog.wire.control_record import ControlType
from oncelog.wire.errors import KafkaError
from oncelog.wire.record_batch import decode_header, iterate_batches
from oncelog.wire.records import Record, encode_batch

from ..log_batches import append_as_leader, end_transaction

BATCHES, RECORDS = 5, 2
END = BATCHES * RECORDS
CONFIG = LogConfig(index_interval_bytes=150)
ROOM = 1 << 20


@pytest.fixture
def log(tmp_path):
    """Return a log with a closed segment of five batches in two epochs, and an active segment."""
    log = PartitionLog.open(
        tmp_path / "t-0",
        topic="t",
        partition=0,
        topic_id=bytes(16),
        config=CONFIG,
        now_ms=1,
    )
    for number in range(BATCHES + 1):
        if number == BATCHES:
            log.roll(1)
        value = b"%d" % number * 20
        batch = encode_batch([Record(n, 10 + number, b"k", value) for n in range(RECORDS)])
        append_as_leader(log, batch, epoch=3 + number // 3)
    log.advance_high_watermark(log.log_end_offset)
    log.segments.first.write_out()
    yield log
    log.local.retire()


def batches_from(log, offset, max_bytes):
    """Return a reader's batches by offset, and whether the reader got no error."""
    found = {}
    try:
        while offset < log.log_end_offset:
            read = log.read(offset, max_bytes, upper_offset=log.log_end_offset)
            data = bytes(read.data)
            for at, header in iterate_batches(data):
                found[header.base_offset] = data[at : at + header.size_bytes]
            if not data or read.next_offset <= offset:
                break
            offset = read.next_offset
    except LOG_TROUBLE:
        return found, False
    return found, True


def found_by_time(log, timestamp_ms):
    step = 0
    while isinstance(step, int):
        step = log.batch_not_older(timestamp_ms, step)
    return None if step is None else (step.header, bytes(step.data))


def flipped(path, bit):
    """Flip this bit of each byte of a file in turn, yield its position, and restore the file."""
    content = path.read_bytes()
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << bit
        with path.open("r+b") as file:
            file.write(damaged)
        yield at
    with path.open("r+b") as file:
        file.write(content)


@pytest.mark.parametrize("bit", [1, 7])
@pytest.mark.parametrize("max_bytes", [1, 150, ROOM])
def test_readers_of_a_damaged_segment_get_an_error_or_the_written_batches(log, bit, max_bytes):
    whole = batches_from(log, 0, ROOM)[0]
    for at in flipped(log.segments.first.file.path, bit):
        for start in range(0, END, RECORDS):
            log.segments.drop_cached_reads()
            found, is_to_end = batches_from(log, start, max_bytes)
            expected = {offset: batch for offset, batch in whole.items() if offset >= start}
            assert found.items() <= expected.items(), f"byte {at}, read from {start}"
            assert not is_to_end or found == expected, f"byte {at}, read from {start}"


@pytest.mark.parametrize("max_bytes", [1, 150, ROOM])
def test_reader_with_remembered_positions_in_a_damaged_segment_gets_an_error(log, max_bytes):
    whole = batches_from(log, 0, ROOM)[0]
    for at in flipped(log.segments.first.file.path, 2):
        found, is_to_end = batches_from(log, 0, max_bytes)
        assert found.items() <= whole.items() and not is_to_end, f"byte {at}"


@pytest.mark.parametrize("kind", ["offset_index", "time_index"])
@pytest.mark.parametrize("bit", [0, 3, 7])
def test_readers_with_a_damaged_index_get_an_error_or_the_written_batches(log, kind, bit):
    whole = batches_from(log, 0, ROOM)[0]
    by_time = {ms: found_by_time(log, ms) for ms in range(9, 18)}
    assert sum(found is not None for found in by_time.values()) == BATCHES + 2
    index = getattr(log.segments.first, kind)
    assert index.count >= 2
    for at in flipped(index.path, bit):
        for start in range(0, END, RECORDS):
            log.segments.drop_cached_reads()
            found, is_to_end = batches_from(log, start, ROOM)
            expected = {offset: batch for offset, batch in whole.items() if offset >= start}
            assert found.items() <= expected.items(), f"byte {at}, read from {start}"
            assert not is_to_end or found == expected, f"byte {at}, read from {start}"
        for ms, expected_batch in by_time.items():
            with suppress(*LOG_TROUBLE):
                assert found_by_time(log, ms) == expected_batch, f"byte {at}, time {ms}"


def test_largest_timestamp_found_by_a_damaged_index_raises_a_kafka_error(log):
    """After a start, the largest timestamp of a closed segment is read when it is needed."""
    log.local.retire()
    again = PartitionLog.open(
        log.directory, topic="t", partition=0, topic_id=bytes(16), config=CONFIG, now_ms=1
    )
    path = again.segments.first.offset_index.path
    path.write_bytes(bytes(each ^ 0x80 for each in path.read_bytes()))
    with pytest.raises(KafkaError):
        _ = again.max_timestamp
    assert again.damage.words
    again.local.retire()


def test_timestamp_search_that_reaches_a_damaged_batch_raises(log):
    assert isinstance(log.batch_not_older(12, 0), TimedBatch)
    path = log.segments.first.file.path
    content = bytearray(path.read_bytes())
    header = decode_header(content)
    position = 2 * header.size_bytes
    assert decode_header(content, position).max_timestamp == 12
    content[position + header.size_bytes - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(LOG_TROUBLE):
        log.batch_not_older(12, 0)


@pytest.mark.parametrize("max_bytes", [400, ROOM])
def test_read_of_many_small_batches_returns_at_most_the_maximum_of_batches(
    log, monkeypatch, max_bytes
):
    whole, is_to_end = batches_from(log, 0, ROOM)
    assert len(whole) == BATCHES + 1 and is_to_end
    monkeypatch.setattr(read_checks, "BATCHES_MAX", 2)
    log.segments.drop_cached_reads()
    read = log.read(0, max_bytes, upper_offset=log.log_end_offset)
    assert [header.base_offset for _, header in iterate_batches(bytes(read.data))] == [0, RECORDS]
    assert read.next_offset == 2 * RECORDS
    assert batches_from(log, 0, max_bytes) == (whole, True)


@pytest.mark.parametrize("at_once_bytes", [150, ROOM])
def test_read_of_small_batches_keeps_only_the_returned_bytes_in_memory(
    log, monkeypatch, at_once_bytes
):
    """Views of all the bytes that were read would keep 1.6 GB in memory for answers of 60 MB."""
    for module in (read_checks, log_read):
        monkeypatch.setattr(module, "BATCHES_MAX", 1)
    monkeypatch.setattr(log_read, "AT_ONCE_BYTES", at_once_bytes)
    monkeypatch.setattr(log_read, "SAMPLE_BYTES", 256)
    log.segments.drop_cached_reads()
    counts = counted_reads(monkeypatch)
    read = log.read(0, ROOM, upper_offset=log.log_end_offset)
    assert read.batches == 1
    assert counts[-1] < 200 or at_once_bytes == ROOM
    kept: Any = read.data.obj if isinstance(read.data, memoryview) else read.data
    assert len(kept) <= 2 * len(read.data)


@pytest.mark.parametrize("min_one_batch", [True, False])
def test_batch_with_a_damaged_length_is_detected_without_reading_that_length(
    log, monkeypatch, min_one_batch
):
    """With a flipped high bit of the length, each fetch would read half a segment."""
    file = log.segments.first.file
    size = decode_header(file.read(0, 100)).size_bytes
    asked = {"upper_offset": log.log_end_offset, "min_one_batch": min_one_batch}
    assert log.read(0, size, **asked).next_offset == RECORDS  # where the next begins is remembered
    file.write_at(size + 8, (3 * size).to_bytes(4))
    counts = counted_reads(monkeypatch)
    if min_one_batch:
        with pytest.raises(LOG_TROUBLE):
            log.read(RECORDS, size, **asked)
    else:
        assert not log.read(RECORDS, size, **asked).data
    assert max(counts) <= size + 8


def counted_reads(monkeypatch) -> list[int]:
    """Return a list that gets the byte count of each later read of a log's file."""
    counts: list[int] = []
    read = LogFile.read

    def counted(self, position, count):
        counts.append(count)
        return read(self, position, count)

    monkeypatch.setattr(LogFile, "read", counted)
    return counts


class Killed(Exception):
    """The error that a test raises in the middle of a removal, as if the process was killed."""


def test_log_with_half_removed_indexes_lists_its_aborted_transactions(log, monkeypatch):
    batch = encode_batch(
        [Record(0, 20, b"k", b"aborted")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    guard = log.producer_state.begin_verification(7, 0, 0, now_ms=1)
    append_as_leader(log, batch, epoch=5, guard=guard)
    end_transaction(log, 7, ControlType.ABORT, epoch=5)
    log.roll(1)
    log.close()
    end = log.log_end_offset
    aborted = log.aborted_transactions.between(0, end)
    assert [producer_id for producer_id, *_ in aborted] == [7]
    content = {path: path.read_bytes() for path in log.directory.iterdir()}
    unlink, left = Path.unlink, 0

    def unlink_some(path, *args, **options):
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        unlink(path, *args, **options)

    real = Path.iterdir
    names = sorted(real(log.directory), key=lambda path: path.suffix != ".txnindex")
    for count in range(len(names)):
        left = count
        with monkeypatch.context() as patches:
            patches.setattr(Path, "unlink", unlink_some)
            patches.setattr(Path, "iterdir", lambda path: iter(names))
            with suppress(Killed):
                remove_derived_files(log.directory)
        again = PartitionLog.open(
            log.directory, topic="t", partition=0, topic_id=bytes(16), config=CONFIG, now_ms=1
        )
        assert again.aborted_transactions.between(0, end) == aborted, f"after {count} files"
        again.local.retire()
        for path in set(real(log.directory)) - set(content):
            unlink(path)
        for path, data in content.items():
            path.write_bytes(data)


def test_indexes_and_leader_epochs_are_all_kept_if_no_file_descriptor_is_free(log, monkeypatch):
    """The log may be served again unchanged, and needs all of its indexes then."""
    log.roll(1)
    log.close()
    names = sorted(log.directory.iterdir())
    real_open = os.open

    def without_directories(path, flags, *args, **options):
        if flags & os.O_DIRECTORY:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return real_open(path, flags, *args, **options)

    with monkeypatch.context() as patches:
        patches.setattr(os, "open", without_directories)
        with pytest.raises(OSError, match="Too many open files"):
            remove_derived_files(log.directory)
    assert sorted(log.directory.iterdir()) == names
