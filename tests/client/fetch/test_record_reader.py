"""Test the records, the positions and the aborted transactions of fetched batches."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.fetch.record_reader import ConsumerRecord, read_records
from oncelog.client.fetch.state import FetchState
from oncelog.wire.control_record import ControlType, encode_marker
from oncelog.wire.errors import CorruptMessage, InvalidRecord
from oncelog.wire.record_batch import HEADER_BYTES, decode_header, rewrite_crc
from oncelog.wire.records import Record, decode_batch, encode_batch

some_bytes = st.none() | st.binary(max_size=200)
some_headers = st.lists(
    st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=2
).map(tuple)


@given(
    st.lists(st.tuples(st.integers(0, 2**45), some_bytes, some_bytes, some_headers), min_size=1),
    st.integers(0, 2**40),
    st.sampled_from([0, 1, 2, 3, 4]),
    st.integers(0, 1),
)
def test_read_records_and_decode_batch_return_equal_records(rows, base, codec, timestamp_type):
    records = [Record(base + 2 * i, *row) for i, row in enumerate(rows)]  # as after compaction
    batch = encode_batch(records, compression=codec, timestamp_type=timestamp_type)
    found = read_records("t", 3, batch, 0, decode_header(batch), 0)
    assert found == [ConsumerRecord("t", 3, *row) for row in decode_batch(batch)]
    assert all(type(r) is ConsumerRecord for r in found)


@given(st.data())
def test_read_records_of_a_damaged_batch_raises_only_invalid_record_errors(data):
    rows = [Record(i, 5 + i, b"key", b"value" * i, (("h", b"1"),)) for i in range(4)]
    batch = bytearray(encode_batch(rows))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(InvalidRecord):
        read_records("t", 0, batch, 0, decode_header(batch), 0)


def data(base: int, producer_id: int, *, transactional: bool = True, count: int = 2) -> bytes:
    return encode_batch(
        [Record(base + i, 1, None, b"%d" % (base + i)) for i in range(count)],
        base_offset=base,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=transactional,
    )


def marker(base: int, producer_id: int, kind: ControlType) -> bytes:
    return encode_marker(
        kind,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=1,
        base_offset=base,
    )


def loaded(log: bytes, aborted=None, *, position: int = 0) -> FetchState:
    state = FetchState("t", 0, position)
    state.load(log, aborted)
    return state


def take_all(state: FetchState, *, read_committed: bool = False, at_once: int = 100) -> list[int]:
    found: list[int] = []
    while records := state.take(at_once, read_committed=read_committed):
        assert len(records) <= at_once
        found += [r.offset for r in records]
        assert found[-1] < state.position
    return found


LOG = (
    data(0, 7)
    + data(2, 8)
    + marker(4, 7, ControlType.ABORT)
    + data(5, 7)
    + marker(7, 8, ControlType.COMMIT)
    + marker(8, 7, ControlType.COMMIT)
)


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_record_reader_skips_aborted_records_and_markers(at_once):
    state = loaded(LOG, [(7, 0)])
    assert take_all(state, read_committed=True, at_once=at_once) == [2, 3, 5, 6]
    assert state.position == state.fetch_offset == 9
    assert not state.has_data
    state = loaded(LOG)
    assert take_all(state, at_once=at_once) == [0, 1, 2, 3, 5, 6]


def test_record_reader_returns_later_records_outside_of_an_aborted_transaction():
    log = data(0, 7) + marker(2, 7, ControlType.ABORT) + data(3, 7, transactional=False)
    assert take_all(loaded(log, [(7, 0)]), read_committed=True) == [3, 4]


def test_record_reader_at_a_position_within_a_batch_returns_the_rest_of_the_batch():
    assert take_all(loaded(data(0, 7, count=5), position=3)) == [3, 4]


def test_consumer_position_follows_the_returned_records_even_if_more_were_fetched():
    state = loaded(data(0, 7, count=5))
    assert [r.offset for r in state.take(2, read_committed=False)] == [0, 1]
    assert (state.position, state.fetch_offset) == (2, 5)
    state.load(data(5, 7), None)
    assert state.answers_waiting == 1
    state.seek(1)
    assert (state.position, state.fetch_offset, state.has_data) == (1, 1, False)
    assert state.take(2, read_committed=False) == []


def test_fetched_answers_have_separate_lists_of_aborted_transactions():
    state = loaded(data(0, 7), [(7, 0)])
    state.load(data(2, 7) + marker(4, 7, ControlType.ABORT) + data(5, 7), [(7, 0)])
    state.load(data(7, 7) + marker(9, 7, ControlType.COMMIT), [])
    assert take_all(state, read_committed=True) == [5, 6, 7, 8]
    assert state.position == 10


def test_fetched_partial_last_batch_is_dropped_and_fetched_again():
    whole = data(0, 7) + data(2, 7)
    state = loaded(whole[:-1])
    assert take_all(state) == [0, 1]
    assert state.fetch_offset == 2
    state.load(b"", None)
    assert not state.has_data


def test_record_reader_with_a_wrong_checksum_raises_corrupt_message():
    broken = bytearray(data(0, 7))
    broken[-2] ^= 1
    with pytest.raises(CorruptMessage):
        take_all(loaded(bytes(broken)))
    rewrite_crc(broken)
    take_all(loaded(bytes(broken)))


def test_raw_record_reader_returns_all_batches_and_markers():
    state = loaded(LOG, [(7, 0)])
    found = []
    while (batch := state.take_raw()) is not None:
        found.append((batch.header.base_offset, batch.header.is_control, batch.is_aborted))
        assert len(batch.data) == batch.header.size_bytes
    assert found == [
        (0, False, True), (2, False, False), (4, True, True),
        (5, False, False), (7, True, False), (8, True, False),
    ]  # fmt: skip
    assert state.position == 9
