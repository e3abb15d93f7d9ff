"""Test that the simulation finds each damaged byte that a log uses without an error."""

import random
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from oncelog.storage.corrupt_file import LOG_TROUBLE
from oncelog.storage.log_config import LogConfig
from oncelog.storage.partition_log import PartitionLog
from oncelog.storage.segments.log_file import scan_headers
from oncelog.storage.segments.segment import Segment
from oncelog.wire.record_batch import BatchHeader, decode_header
from oncelog.wire.records import Record, encode_batch

from .file_damage import DamagedByte, wrong_answers

BATCHES = 12


def made(directory: Path) -> PartitionLog:
    """Return a log with an active segment, and a closed one with an index entry for each batch."""
    config = LogConfig(index_interval_bytes=1)
    log = PartitionLog.open(
        directory, topic="t", partition=0, topic_id=bytes(16), config=config, now_ms=1
    )
    for number in range(BATCHES + 1):
        if number == BATCHES:
            log.roll(1)
        batch = memoryview(bytearray(encode_batch([Record(0, 1_000 + number, None, b"value")])))
        log.append_as_leader(batch, decode_header(batch), leader_epoch=0, now_ms=1)
    log.advance_high_watermark(log.log_end_offset)
    return log


def meets(log: PartitionLog) -> bool:
    try:
        assert list(wrong_answers(log)) == []
    except LOG_TROUBLE:
        return True
    return False


@pytest.mark.parametrize("kind", ["offset_index", "time_index"])
def test_index_with_a_damaged_entry_is_detected_or_returns_right_answers(
    tmp_path: Path, kind: str
) -> None:
    log, met = made(tmp_path / "t-0"), 0
    assert not meets(log)
    path = getattr(log.segments.first, kind).path
    content = path.read_bytes()
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        met += meets(log)
    assert met >= len(content) // 4
    path.write_bytes(content)
    assert not meets(log)
    log.local.retire()


def test_index_lookup_without_its_check_returns_wrong_answers_that_are_reported(
    tmp_path: Path,
) -> None:
    log = made(tmp_path / "t-0")
    path = log.segments.first.offset_index.path
    content = bytearray(path.read_bytes())
    content[19] ^= 0x01  # the third entry seems to be of the offset before
    path.write_bytes(content)

    def unchecked(segment: Segment, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        start = segment.offset_index.lookup(offset)[1]
        return scan_headers(segment.file, start, segment.size_bytes)

    with mock.patch.object(Segment, "headers_near", unchecked):
        assert next(wrong_answers(log)) == "not found by its offset: 2"
    log.local.retire()


def test_damaged_byte_in_a_rewritten_part_of_the_file_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "000000000001.wal"
    path.write_bytes(bytes(64) + b"the end")
    byte = DamagedByte.chosen(random.Random(3), path)
    assert not byte.is_there()
    byte.write(byte.now)
    assert byte.position >= 1 and byte.is_there()
    with path.open("r+b") as file:
        file.seek(byte.position - 1)
        file.write(bytes([1, byte.now]))
    assert not byte.is_there()
