"""Test that indexes have Kafka's bytes, and return right positions from memory and from disk."""

import os
from bisect import bisect_right

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oncelog.storage.segments.index import CorruptIndex, OffsetIndex, TimeIndex

BASE = 1000


@pytest.fixture
def offsets(tmp_path) -> OffsetIndex:
    return OffsetIndex(tmp_path / "1000.index", BASE)


@pytest.fixture
def times(tmp_path) -> TimeIndex:
    return TimeIndex(tmp_path / "1000.timeindex", BASE)


def test_index_bytes_equal_the_kafka_bytes(offsets, times):
    offsets.append(1009, 4711)
    times.append(1_700_000_000_000, 1007)
    offsets.close()
    times.close()
    assert offsets.path.read_bytes().hex() == "0000000900001267"
    assert times.path.read_bytes().hex() == "0000018bcfe5680000000007"


def test_empty_offset_and_time_indexes_point_to_the_segment_start(offsets, times):
    assert offsets.lookup(5000) == (BASE, 0)
    assert times.lookup(5000) == (-1, BASE)
    assert offsets.last_entry == (BASE, 0)
    assert times.last_entry == (-1, BASE)


@pytest.mark.parametrize("count", [1, 3, 511, 512, 513, 514, 1023, 1024, 1025, 3000])
@pytest.mark.parametrize("reopen", [False, True])
def test_index_lookups_equal_the_lookups_in_a_sorted_list(tmp_path, offsets, times, count, reopen):
    known = [BASE + 10 * n + 9 for n in range(count)]
    for n, offset in enumerate(known):
        offsets.append(offset, 100 * (n + 1))
        times.append(5 * n, offset)
    if reopen:
        offsets.close()
        times.close()
        offsets, times = OffsetIndex(offsets.path, BASE), TimeIndex(times.path, BASE)
    assert offsets.last_entry == (known[-1], 100 * count)
    assert times.last_entry == (5 * (count - 1), known[-1])
    step = max(count // 50, 1)
    for target in [*range(BASE - 2, known[-1] + 12, step), *known[-3:]]:
        n = bisect_right(known, target)
        assert offsets.lookup(target) == ((known[n - 1], 100 * n) if n else (BASE, 0))
    for timestamp in range(-2, 5 * count + 7, step):
        n = min(timestamp // 5, count - 1)
        assert times.lookup(timestamp) == ((5 * n, known[n]) if timestamp >= 0 else (-1, BASE))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.integers(0, 700), st.integers(0, 800), st.booleans(), st.booleans())
def test_truncated_index_keeps_the_entries_below_the_offset(tmp_path, count, cut, written, reopen):
    for path in tmp_path.iterdir():
        path.unlink()
    offsets = OffsetIndex(tmp_path / "1000.index", BASE)
    times = TimeIndex(tmp_path / "1000.timeindex", BASE)
    for n in range(count):
        offsets.append(BASE + n, n + 1)
        times.append(n, BASE + n)
    if written:
        offsets.write_out()
        times.write_out()
    offsets.truncate_to(BASE + cut)
    times.truncate_to(BASE + cut)
    if reopen:
        offsets.close()
        times.close()
        offsets, times = OffsetIndex(offsets.path, BASE), TimeIndex(times.path, BASE)
    left = min(cut, count)
    assert offsets.count == times.count == left
    assert offsets.last_entry == ((BASE + left - 1, left) if left else (BASE, 0))
    offsets.append(BASE + 900, 5000)
    times.append(900, BASE + 900)
    assert offsets.lookup(BASE + 899) == ((BASE + left - 1, left) if left else (BASE, 0))
    assert times.lookup(900) == (900, BASE + 900)
    offsets.check()
    times.check()


def test_index_entry_not_above_the_last_one_is_refused(offsets, times):
    offsets.append(BASE + 5, 100)
    for entry in ((BASE + 5, 200), (BASE + 4, 200), (BASE + 6, 100)):
        with pytest.raises(CorruptIndex):
            offsets.append(*entry)
    times.append(50, BASE + 5)
    for entry in ((49, BASE + 6), (60, BASE + 4)):
        with pytest.raises(CorruptIndex):
            times.append(*entry)


def test_time_index_stores_the_same_timestamp_once(times):
    times.append(50, BASE + 5)
    times.append(50, BASE + 9)
    assert (times.count, times.last_entry) == (1, (50, BASE + 5))


def test_index_entry_with_an_offset_beyond_31_bits_is_refused(offsets):
    with pytest.raises(CorruptIndex):
        offsets.append(BASE + 2**31, 100)
    offsets.append(BASE + 2**31 - 1, 100)
    assert offsets.lookup(BASE + 2**31) == (BASE + 2**31 - 1, 100)


def test_index_with_the_maximum_of_entries_reports_full(tmp_path):
    offsets = OffsetIndex(tmp_path / "a", BASE, 17)
    times = TimeIndex(tmp_path / "b", BASE, 36)
    for n in range(2):
        assert not offsets.is_full
        assert not times.is_full
        offsets.append(BASE + n, n + 1)
        times.append(n, BASE + n)
    assert offsets.is_full
    assert times.is_full
    times.append(9, BASE + 9)  # the entry that closes the segment


@pytest.mark.parametrize(
    "content",
    [
        b"\0" * 7,  # no whole entry
        b"\0" * 4096,  # preallocated by Kafka, and never trimmed
        bytes.fromhex("00000009000000100000000500000020"),  # offsets fall
        bytes.fromhex("00000005000000200000000900000010"),  # positions fall
        bytes.fromhex("fffffff000000010"),  # below the base offset
        bytes.fromhex("00000005fffffff0"),  # below the segment's start
    ],
)
def test_offset_index_with_wrong_entries_is_detected(tmp_path, content):
    path = tmp_path / "1000.index"
    path.write_bytes(content)
    with pytest.raises(CorruptIndex, match=r"1000\.index.*rebuilt"):
        OffsetIndex(path, BASE).check()


@pytest.mark.parametrize("content", [b"\0" * 13, b"\0" * 1200])
def test_time_index_with_wrong_entries_is_detected(tmp_path, content):
    path = tmp_path / "1000.timeindex"
    path.write_bytes(content)
    with pytest.raises(CorruptIndex):
        TimeIndex(path, BASE).check()


def test_index_with_half_an_entry_at_its_end_is_trimmed_at_its_close(tmp_path):
    path = tmp_path / "1000.index"
    path.write_bytes(bytes.fromhex("0000000900000010000000"))
    index = OffsetIndex(path, BASE)
    index.close()
    index.check()
    assert path.stat().st_size == 8


def test_flushed_index_has_every_entry_in_its_file(offsets):
    for n in range(20_000):
        offsets.append(BASE + n, n + 1)
        if n % 300 == 0:
            offsets.flush()
    offsets.flush()
    index = OffsetIndex(offsets.path, BASE)
    assert index.count == 20_000
    assert [index.entry(n) for n in (0, 511, 512, 19_999)] == [
        (BASE + n, n + 1) for n in (0, 511, 512, 19_999)
    ]


def test_index_with_flushed_entries_above_a_truncation_is_trimmed(offsets):
    for n in range(10):
        offsets.append(BASE + n, n + 1)
    offsets.flush()
    offsets.truncate_to(BASE + 4)
    offsets.write_out()
    assert offsets.path.stat().st_size == 32


def test_index_is_renamed_and_deleted_with_its_file(tmp_path, offsets):
    offsets.append(BASE, 1)
    offsets.rename_to(tmp_path / "1000.index.swap")
    assert OffsetIndex(tmp_path / "1000.index.swap", BASE).count == 1
    offsets.delete()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("column", [0, 4])
def test_offset_index_lookup_of_a_negative_entry_is_detected(offsets, number, column):
    """A read at a negative position fails with EINVAL, which looks like a broken disk."""
    for each in range(3):
        offsets.append(BASE + each * 10 + 9, each * 100 + 100)
    offsets.close()
    damaged = bytearray(offsets.path.read_bytes())
    damaged[number * 8 + column] ^= 0x80
    offsets.path.write_bytes(damaged)
    again = OffsetIndex(offsets.path, BASE)
    with pytest.raises(CorruptIndex, match="it has the entry"):
        again.lookup(BASE + number * 10 + 9)
        again.lookup_position(number * 100 + 100)
