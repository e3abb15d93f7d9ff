"""Test sending and polling records as columns, and the partitions that columns get."""

import array
import asyncio
import struct
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.fetch.state import FetchState
from oncelog.client.produce.accumulator import Accumulator
from oncelog.client.produce.columns import as_column, rows_by_partition
from oncelog.client.produce.delivery import Deliveries, Outcome, RecordMetadata, RecordRange
from oncelog.client.produce.key_hashing import WORTH_IT, vector_library
from oncelog.client.produce.partitioner import (
    KEYS_KEPT,
    KeyPartitions,
    StickyPartitioner,
    partition_for_key,
)
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.control_record import ControlType, encode_marker
from oncelog.wire.errors import InvalidRecord, RequestTimedOut
from oncelog.wire.record_rows import Rows
from oncelog.wire.records import Record, decode_batch, encode_batch

from .filling import put

some_partitions = st.integers(1, 1_000)
fields = st.lists(st.none() | st.binary(max_size=9), max_size=40)
STICKS_TO = 2
stick = partial(StickyPartitioner(STICKS_TO, bytes_max=1 << 60).choose_many, partitions=4)


@dataclass
class Array:
    """An Arrow array of binary fields that begins at an offset into its buffers."""

    fields: list[bytes | None]
    offset: int
    type: str = "binary"
    null_count: int = field(init=False)

    def __post_init__(self) -> None:
        self.null_count = sum(f is None for f in self.fields[self.offset :])

    def __len__(self) -> int:
        return len(self.fields) - self.offset

    def buffers(self) -> list[Any]:
        width = "q" if self.type.startswith("large") else "i"
        ends, bits = array.array(width, [0]), bytearray(len(self.fields) // 8 + 1)
        for at, each in enumerate(self.fields):
            ends.append(ends[-1] + len(each or b""))
            bits[at >> 3] |= (each is not None) << (at & 7)
        data = b"".join(f or b"" for f in self.fields)
        return [bits, ends.tobytes(), data]


@given(fields, st.integers(0, 20), st.sampled_from(["binary", "large_string"]))
def test_arrow_array_is_converted_to_a_list_of_bytes(listed, offset, kind):
    offset = min(offset, len(listed))
    given_array = Array(listed, offset, kind)
    assert as_column(given_array) == listed[offset:]
    if None not in listed:
        given_array.buffers = lambda: [None, *Array(listed, 0, kind).buffers()[1:]]  # type: ignore[method-assign]
        assert as_column(given_array) == listed[offset:]


def test_column_of_any_kind_is_converted_and_an_arrow_array_of_numbers_is_refused():
    assert as_column((b"1", None)) == (b"1", None)
    assert as_column(iter([b"1"])) == [b"1"]
    chunked = type("Chunked", (), {"chunks": [Array([b"1"], 0), Array([None], 0)]})()
    assert as_column(chunked) == [b"1", None]
    with pytest.raises(TypeError, match="binary or text, not int64"):
        as_column(Array([], 0, "int64"))


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=3), st.integers(-1, 3)), max_size=30),
    st.booleans(),
    st.booleans(),
)
def test_send_many_with_a_partition_column_keeps_the_order_of_each_partition(
    listed, has_partitions, has_keys
):
    values: list[bytes | None] = [b"%d" % i for i in range(len(listed))]
    keys = [key for key, _ in listed] if has_keys else None
    partitions = [partition for _, partition in listed] if has_partitions else None
    by_key = KeyPartitions(4)
    found: dict[int | None, list[bytes | None]] = {}
    for where, rows in rows_by_partition(values, keys, None, 7, partitions, by_key, 1 << 20, stick):
        builder = BatchBuilder()
        if len(rows):
            builder.extend(rows, 0, 1 << 20)
            found[where] = [r.value for r in decode_batch(builder.build())]
    expected: dict[int | None, list[bytes | None]] = {}
    for i, (key, partition) in enumerate(listed):
        where = None
        if has_partitions and partition >= 0:
            where = partition
        elif has_keys and key is not None:
            where = partition_for_key(key, 4)
        expected.setdefault(where, []).append(b"%d" % i)
    if len(expected) > 1 and None in expected:  # beside other records they stick to one partition
        stuck = expected.pop(None)
        together = [*expected.get(STICKS_TO, []), *stuck]
        expected[STICKS_TO] = sorted(together, key=values.index)
    assert found == expected


@pytest.fixture(scope="module")
def numpy() -> Any:
    return pytest.importorskip("numpy")


@given(keys=st.lists(st.none() | st.binary(max_size=13), max_size=40), partitions=some_partitions)
def test_send_many_with_a_key_column_partitions_like_single_sends(numpy, keys, partitions):
    assert vector_library() is numpy
    keys = keys * (WORTH_IT // 4)  # enough of some lengths, too few of others
    found = KeyPartitions(partitions).of_many(keys)
    assert found == [-1 if k is None else partition_for_key(k, partitions) for k in keys]


def test_send_many_accepts_any_bytes_like_key():
    known = KeyPartitions(4)
    keys = [bytearray(b"1"), memoryview(b"1"), b"1"]
    ((_, rows),) = rows_by_partition([b""] * 3, keys, None, 0, None, known, 1 << 20, stick)
    assert len(rows) == 3


def test_send_many_encodes_the_columns_of_its_call_even_if_they_change_meanwhile():
    """Between two batches another task, or the thread of the call, may use the lists again."""
    values, keys = [b"a", b"b"], [b"k", b"l"]
    encoded = Rows(list(values), list(keys)).encode(0, 2, 0, 0)
    ((_, rows),) = rows_by_partition(values, keys, None, 0, None, None, 1 << 20, stick)
    values[0], keys[1] = b"longer", b""
    values.pop()
    assert rows.encode(0, 2, 0, 0) == encoded


def test_send_many_accepts_subclasses_of_bytes_as_send_does():
    class Text(bytes):
        pass

    ((_, rows),) = rows_by_partition(
        [Text(b"v"), None], [Text(b"k"), b""], None, 0, 0, None, 1 << 20, stick
    )
    assert rows.encode(0, 2, 0, 0) == Rows([b"v", None], [b"k", b""]).encode(0, 2, 0, 0)


def test_send_many_with_columns_of_different_lengths_is_refused():
    with pytest.raises(ValueError, match="columns of 2 and 1 records"):
        rows_by_partition([b"", b""], [b""], None, 0, None, KeyPartitions(1), 1 << 20, stick)
    with pytest.raises(ValueError, match="columns of 2 and 3 records"):
        rows_by_partition([b"", b""], None, None, 0, [0, 1, 2], None, 1 << 20, stick)


def test_key_partition_cache_stays_within_its_bound():
    known = KeyPartitions(7)
    for number in range(KEYS_KEPT + 10):
        assert known[struct.pack(">i", number)] == partition_for_key(struct.pack(">i", number), 7)
    assert len(known) == 10
    assert known[b"long" * 100] == partition_for_key(b"long" * 100, 7)
    assert len(known) == 10


# --- in the accumulator


def test_send_many_fills_the_open_batch_before_it_opens_another_batch():
    batches = Accumulator(batch_bytes=1_000, linger_ms=5, delivery_timeout_ms=100)
    put(batches, b"first")
    rows = Rows([b"%0100d" % i for i in range(30)])
    at, deliveries = 0, Deliveries()
    while at < len(rows):
        outcome, index, taken = batches.append_rows("t", 0, rows, at, 0)
        deliveries.add(outcome, index, taken)
        at += taken
    assert deliveries.count == 30 and not deliveries.done()
    with pytest.raises(asyncio.InvalidStateError):
        deliveries.result()
    sent = []
    while taken_now := batches.take(10):
        sent += taken_now
    assert [b.builder.count for b in sent] == [9, 8, 8, 6]
    assert all(b.builder.size_bytes <= 1_000 for b in sent)
    assert batches.unfinished_bytes == sum(b.size_bytes for b in sent)
    base = 0
    for batch in sent:
        batch.outcome.written(RecordMetadata("t", 0, base))
        base += batch.builder.count
    assert deliveries.result() == [
        RecordRange("t", 0, 1, 8),
        RecordRange("t", 0, 9, 8),
        RecordRange("t", 0, 17, 8),
        RecordRange("t", 0, 25, 6),
    ]


async def test_send_many_delivery_of_a_split_batch_completes_or_fails_as_a_whole():
    first, second = Outcome(), Outcome()
    deliveries = Deliveries()
    deliveries.add(first, 2, 5)
    deliveries.add(second, 0, 1)
    waiting = asyncio.ensure_future(_await(deliveries))
    await asyncio.sleep(0)
    halves = (Outcome(), Outcome())
    first.split(((0, halves[0]), (4, halves[1])))
    second.written(RecordMetadata("t", 1, 7))
    halves[1].written(RecordMetadata("t", 0, 50))
    await asyncio.sleep(0)
    assert not waiting.done() and not deliveries.done()
    halves[0].written(RecordMetadata("t", 0, 40))
    assert await waiting == [
        RecordRange("t", 0, 42, 2),
        RecordRange("t", 0, 50, 3),
        RecordRange("t", 1, 7, 1),
    ]
    lost = Outcome()
    deliveries.add(lost, 0, 1)
    lost.failed(RequestTimedOut("late"))
    with pytest.raises(RequestTimedOut):
        await deliveries
    assert await Deliveries() == []


async def _await(deliveries: Deliveries) -> list[RecordRange]:
    return await deliveries


# --- reading

some_headers = st.lists(
    st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=2
).map(tuple)
some_rows = st.lists(
    st.tuples(
        st.integers(0, 2**45),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200) | st.just(b"x" * 9_000),
        some_headers,
    ),
    min_size=1,
    max_size=80,
)


@given(
    some_rows,
    st.integers(0, 2**40),
    st.integers(1, 2),
    st.integers(-2, 170),
    st.none() | st.integers(-2, 170),
    st.integers(0, 1),
)
def test_poll_columns_returns_the_same_records_as_poll(
    rows, base, step, first, last, timestamp_type
):
    records = [Record(base + step * i, *row) for i, row in enumerate(rows)]
    state = FetchState("t", 3, 0)
    state.load(encode_batch(records, timestamp_type=timestamp_type), None)
    raw = state.take_raw()
    assert raw is not None
    until = None if last is None else base + last
    columns = raw.columns(base + first, until)
    headers = columns.headers or [()] * len(columns.values)
    found = zip(
        columns.offsets, columns.timestamps, columns.keys, columns.values, headers, strict=True
    )
    expected = [
        tuple(r)
        for r in decode_batch(encode_batch(records, timestamp_type=timestamp_type))
        if r.offset >= base + first and (until is None or r.offset < until)
    ]
    assert list(found) == expected
    assert (columns.topic, columns.partition, columns.header) == ("t", 3, raw.header)


def batch(base: int, count: int = 3, **fields: Any) -> bytes:
    rows = [Record(base + i, 1, None, b"%d" % (base + i)) for i in range(count)]
    return encode_batch(rows, base_offset=base, producer_epoch=0, base_sequence=0, **fields)


def test_poll_columns_at_read_committed_omits_aborted_records_and_markers():
    aborts = encode_marker(
        ControlType.ABORT,
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=1,
        base_offset=6,
    )
    log = batch(0) + batch(3, producer_id=1, transactional=True) + aborts + batch(7)
    for read_committed, expected in ((True, [1, 2, 7, 8, 9]), (False, [1, 2, 3, 4, 5, 7, 8, 9])):
        state = FetchState("t", 0, 1)
        state.load(log, [(1, 3)] if read_committed else None)
        found = []
        while (columns := state.take_columns(read_committed=read_committed)) is not None:
            found += columns.offsets
            assert state.position == columns.offsets[-1] + 1 or read_committed
        assert found == expected and state.position == 10
    state.seek(6)
    state.load(aborts, None)
    raw = state.take_raw()
    assert raw is not None
    with pytest.raises(InvalidRecord, match="marker"):
        raw.columns()


def test_poll_poll_columns_and_poll_batches_may_be_mixed_in_one_partition():
    state = FetchState("t", 0, 0)
    state.load(batch(0, 5) + batch(5, 5), None)
    assert [r.offset for r in state.take(2, read_committed=False)] == [0, 1]
    columns = state.take_columns(read_committed=False)
    assert columns is not None and list(columns.offsets) == [2, 3, 4]
    assert [r.offset for r in state.take(2, read_committed=False)] == [5, 6]
    raw = state.take_raw()
    assert raw is not None and list(raw.columns(state.position - 3).offsets) == [7, 8, 9]
