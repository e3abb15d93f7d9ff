"""Test that searches in the records of a batch find and refuse the same records as the decoder."""

import random
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.runtime.steps import run_to_end
from oncelog.wire.errors import InvalidRecord, InvalidTimestamp
from oncelog.wire.primitives import encode_varint
from oncelog.wire.record_batch import HEADER_BYTES, decode_header
from oncelog.wire.record_walk import (
    ITEMS_PER_STEP,
    NAMED_RECORDS_MAX,
    SKELETONS_PER_STEP,
    first_record_not_older,
    records_without_key,
    timestamps,
    walk_skeleton,
)
from oncelog.wire.records import Record, decode_batch, encode_batch, varint_at

from ..lying_batches import batch, record
from .test_records import record_lists


def without_key(batch: bytes) -> list[int]:
    found = run_to_end(records_without_key(batch[HEADER_BYTES:], decode_header(batch)))
    assert found.total == len(found.places)
    return found.places


@given(record_lists(gaps=True))
def test_record_walk_finds_the_records_without_a_key(records: list[Record]) -> None:
    batch = encode_batch(records)
    assert without_key(batch) == [i for i, record in enumerate(records) if record.key is None]


@pytest.mark.in_turn
@settings(max_examples=300)
@given(record_lists(gaps=True), st.randoms(use_true_random=False))
def test_record_walk_refuses_the_same_records_as_the_decoder(
    records: list[Record], chance: random.Random
) -> None:
    batch = bytearray(encode_batch(records))
    for _ in range(chance.randint(1, 3)):
        batch[chance.randrange(HEADER_BYTES, len(batch))] = chance.choice([0, 1, 2, 127, 128, 255])
    if chance.random() < 0.3:
        del batch[chance.randrange(HEADER_BYTES, len(batch)) :]
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    try:
        expected = [i for i, record in enumerate(decode_batch(batch)) if record.key is None]
    except InvalidRecord:
        with pytest.raises(InvalidRecord):
            without_key(bytes(batch))
    else:
        assert without_key(bytes(batch)) == expected


def test_record_walk_of_many_records_or_headers_yields_regularly() -> None:
    count = 20 * ITEMS_PER_STEP
    many_records = [Record(i, 0, b"k", None) for i in range(count)]
    many_headers = [Record(0, 0, None, None, tuple(("h", None) for _ in range(count)))]
    some_of_both = [
        Record(i, 0, b"k", None, tuple(("h", None) for _ in range(ITEMS_PER_STEP - 2)))
        for i in range(20)
    ]
    for records in (many_records, many_headers, some_of_both):
        batch = encode_batch(records)
        steps = records_without_key(batch[HEADER_BYTES:], decode_header(batch))
        assert 19 <= sum(1 for _ in steps) <= 20


def test_record_walk_over_10001_keyless_records_returns_their_count_and_the_first_10000() -> None:
    count = NAMED_RECORDS_MAX + 1
    batch = encode_batch([Record(i, 0, None, None) for i in range(count)])
    found = run_to_end(records_without_key(batch[HEADER_BYTES:], decode_header(batch)))
    assert found == (count, list(range(NAMED_RECORDS_MAX)), count)


@given(record_lists(gaps=True))
def test_record_walk_finds_the_timestamps(records: list[Record]) -> None:
    batch = encode_batch(records)
    header = decode_header(batch)
    assert list(timestamps(batch[HEADER_BYTES:], header)) == [r.timestamp for r in records]


# -- skeletons


def skeleton(batch: bytes | bytearray) -> tuple[int, int]:
    walked = run_to_end(walk_skeleton(memoryview(batch)[HEADER_BYTES:], decode_header(batch)))
    return walked.earliest, walked.latest


def damage(batch: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 3)):
        batch[chance.randrange(HEADER_BYTES, len(batch))] = chance.choice([0, 1, 2, 127, 128, 255])
    if chance.random() < 0.3:
        del batch[chance.randrange(HEADER_BYTES, len(batch)) :]
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")


@given(record_lists())
def test_record_skeleton_has_the_earliest_and_latest_timestamp_of_the_batch(
    records: list[Record],
) -> None:
    times = [record.timestamp for record in records]
    timed = [time for time in times if time != -1] or times
    assert skeleton(encode_batch(records)) == (min(timed), max(times))


@pytest.mark.in_turn
@settings(max_examples=500)
@given(record_lists(), st.randoms(use_true_random=False))
def test_record_skeleton_of_a_damaged_but_decodable_batch_has_the_decoded_timestamps(
    records: list[Record], chance: random.Random
) -> None:
    batch = bytearray(encode_batch(records))
    damage(batch, chance)
    try:
        read = decode_batch(batch)
    except InvalidRecord:
        with suppress(InvalidRecord, InvalidTimestamp):  # keys and values may be wrong
            skeleton(batch)
        return
    times = [record.timestamp for record in read]
    if all(-(2**63) <= time < 2**63 for time in times):
        timed = [time for time in times if time != -1] or times
        assert skeleton(batch) == (min(timed), max(times))
    else:
        with pytest.raises(InvalidTimestamp):
            skeleton(batch)


@pytest.mark.in_turn
@settings(max_examples=500)
@given(record_lists(), st.randoms(use_true_random=False))
def test_record_skeleton_walk_refuses_the_same_batches_as_a_plain_walk(
    records: list[Record], chance: random.Random
) -> None:
    """The plain walk reads only the length, timestamp and offset of each record."""
    batch = bytearray(encode_batch(records))
    damage(batch, chance)
    data, header = bytes(batch[HEADER_BYTES:]), decode_header(batch)
    at, fits = 0, True
    try:
        for index in range(header.record_count):
            length, at = varint_at(data, at)
            end = at + length
            _, at = varint_at(data, at + 1)
            delta, at = varint_at(data, at)
            fits &= delta == index and end - at >= 3
            at = end if end >= at else len(data)
    except (IndexError, InvalidRecord):
        fits = False
    if fits and at == len(data):
        with suppress(InvalidTimestamp):
            skeleton(batch)
    else:
        with pytest.raises(InvalidRecord):
            skeleton(batch)


def test_record_skeleton_walk_yields_regularly() -> None:
    batch = encode_batch([Record(i, 0, b"k", None) for i in range(20 * SKELETONS_PER_STEP)])
    steps = walk_skeleton(memoryview(batch)[HEADER_BYTES:], decode_header(batch))
    assert sum(1 for _ in steps) == 19


@pytest.mark.parametrize("index", [0, 1, 63, 64, 127, 128, 8191, 8192, 8300, 16_384, 16_999])
def test_record_skeleton_of_17000_records_detects_one_wrong_offset(index: int) -> None:
    batch = bytearray(encode_batch([Record(i, 0, None, None) for i in range(17_000)]))
    assert skeleton(batch) == (0, 0)
    at = HEADER_BYTES
    for _ in range(index):
        at += 1 + (batch[at] >> 1)
    size = len(encode_varint(index))
    for place in range(at + 3, at + 3 + size):
        for bit in (2, 16) if place == at + 3 else (1, 16):
            batch[place] ^= bit
            with pytest.raises(InvalidRecord):
                skeleton(batch)
            batch[place] ^= bit
    assert skeleton(batch) == (0, 0)


@pytest.mark.parametrize(
    ("timestamp_delta", "offset_delta"), [(2**63 - 1, 0), (0, 2**63 - 1), (0, 1)]
)
def test_timestamp_search_over_a_record_with_an_impossible_delta_raises(
    timestamp_delta: int, offset_delta: int
) -> None:
    """Without record validation, a topic may have wrong deltas, and sums of more than 64 bits."""
    records = record(offset_delta, timestamp_delta)
    header = decode_header(batch(records, 1, now_ms=1_700_000_000_000))._replace(base_offset=7)
    with pytest.raises(InvalidRecord):
        run_to_end(first_record_not_older(records, header, 0, 0))
