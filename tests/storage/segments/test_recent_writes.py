"""Test the cache of recently written batches, from which readers get the bytes of the file."""

from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.storage.log_config import LogConfig
from oncelog.storage.partition_log import PartitionLog
from oncelog.storage.segments.recent_writes import RecentWrites
from oncelog.storage.segments.segment import Segment
from oncelog.wire.record_batch import decode_header
from oncelog.wire.records import Record, encode_batch

NOW_MS = 1_700_000_000_000


class Log:
    def __init__(self, directory: Path, recent: RecentWrites) -> None:
        self.log = PartitionLog.open(
            directory / "t-0", topic="t", partition=0, topic_id=bytes(16), config=LogConfig(),
            now_ms=NOW_MS,
        )  # fmt: skip
        self.log.segments.recent = recent

    def append(self, value_bytes: int) -> memoryview:
        batch = memoryview(bytearray(encode_batch([Record(0, NOW_MS, b"k", bytes(value_bytes))])))
        self.log.append_as_leader(batch, decode_header(batch), leader_epoch=0, now_ms=NOW_MS)
        return batch

    def read(self, offset: int, max_bytes: int) -> bytes | bytearray | memoryview:
        return self.log.read(offset, max_bytes, upper_offset=self.log.log_end_offset).data


def is_same_memory(data: object, batch: memoryview) -> bool:
    return isinstance(data, memoryview) and data.obj is batch.obj


def test_large_batch_just_appended_is_read_from_its_receive_buffer(tmp_path: Path) -> None:
    log = Log(tmp_path, RecentWrites())
    small, large = log.append(100), log.append(100_000)
    assert not is_same_memory(log.read(0, 100), small)
    assert is_same_memory(log.read(1, 1 << 20), large)
    assert bytes(log.read(1, 1 << 20)) == bytes(large)


def test_read_of_two_large_batches_returns_only_those_that_fit(tmp_path: Path) -> None:
    log = Log(tmp_path, RecentWrites())
    first, second = log.append(100_000), log.append(100_000)
    assert is_same_memory(log.read(0, 150_000), first)
    assert is_same_memory(log.read(1, 150_000), second)
    assert bytes(log.read(0, 1 << 20)) == bytes(first) + bytes(second)  # they are one read


@pytest.mark.parametrize("what", ["roll", "cut", "no longer served"])
def test_recent_write_cache_is_unused_after_a_roll_a_truncation_or_a_drop(
    tmp_path: Path, what: str
) -> None:
    log = Log(tmp_path, RecentWrites())
    kept, batch = log.append(100_000), log.append(100_000)
    if what == "roll":
        log.log.roll(NOW_MS)
    elif what == "cut":
        log.log.truncation.truncate_to(1)
        batch = kept
    else:
        log.log.segments.drop_cached_reads()
    offset = log.log.log_end_offset - 1
    assert bytes(log.read(offset, 1 << 20)) == bytes(batch)
    assert not is_same_memory(log.read(offset, 1 << 20), batch)


def test_receive_buffer_around_several_cached_batches_is_counted_once() -> None:
    """A batch of 32 kB may keep the whole buffer of a request with 100 MB in memory."""
    recent, segment = RecentWrites(1000, min_bytes=0), cast(Segment, object())
    too_large = bytearray(1001)
    recent.note(segment, 0, memoryview(too_large)[:10])
    too_large.clear()  # raises BufferError while a view of the frame exists
    frames = [bytearray(400) for _ in range(3)]
    for number, frame in enumerate(frames):
        for part in range(4):
            recent.note(segment, 1000 * number + 100 * part, memoryview(frame)[:100])
    frames[0].clear()
    assert recent.read(segment, 0, 100, 100) is None
    for number in (1, 2):
        with pytest.raises(BufferError):
            frames[number].clear()
        assert recent.read(segment, 1000 * number, 100, 100) is not None
    recent.discard(segment)
    frames[1].clear()
    frames[2].clear()


@given(st.lists(st.tuples(st.integers(1, 700), st.integers(0, 9)), max_size=20))
def test_recent_write_cache_beyond_its_limit_evicts_the_oldest(
    steps: list[tuple[int, int]],
) -> None:
    recent, segment, position = RecentWrites(1000, min_bytes=0), cast(Segment, object()), 0
    written: list[tuple[int, bytes]] = []
    for size_bytes, forget in steps:
        if not forget:
            recent.discard(segment)
            written.clear()
        written.append((position, bytes(size_bytes)))
        recent.note(segment, *written[-1])
        position += size_bytes
        left_bytes = 1000
        for at, batch in reversed(written):
            left_bytes -= len(batch)
            found = recent.read(segment, at, len(batch), 1000)
            assert found is (batch if left_bytes >= 0 else None)
