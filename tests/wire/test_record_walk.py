"""Looking through records finds what reading them finds, and refuses what reading refuses."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.wire.errors import InvalidRecord
from oncelog.wire.record_batch import HEADER_BYTES, decode_header
from oncelog.wire.record_walk import (
    ITEMS_PER_STEP,
    NAMED_RECORDS_MAX,
    records_without_key,
    timestamps,
)
from oncelog.wire.records import Record, decode_batch, encode_batch
from oncelog.wire.steps import run_to_end

from .test_records import record_lists


def without_key(batch: bytes) -> list[int]:
    found = run_to_end(records_without_key(batch[HEADER_BYTES:], decode_header(batch)))
    assert found.total == len(found.places)
    return found.places


@given(record_lists(gaps=True))
def test_it_finds_the_records_without_key(records: list[Record]) -> None:
    batch = encode_batch(records)
    assert without_key(batch) == [i for i, record in enumerate(records) if record.key is None]


@settings(max_examples=300)
@given(record_lists(gaps=True), st.randoms(use_true_random=False))
def test_it_refuses_what_reading_refuses(records: list[Record], chance: random.Random) -> None:
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


def test_it_stops_often_enough_for_others() -> None:
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


def test_millions_without_key_are_counted_and_the_first_are_named() -> None:
    count = NAMED_RECORDS_MAX + 1
    batch = encode_batch([Record(i, 0, None, None) for i in range(count)])
    found = run_to_end(records_without_key(batch[HEADER_BYTES:], decode_header(batch)))
    assert found == (count, list(range(NAMED_RECORDS_MAX)), count)


@given(record_lists(gaps=True))
def test_it_finds_the_times(records: list[Record]) -> None:
    batch = encode_batch(records)
    header = decode_header(batch)
    assert list(timestamps(batch[HEADER_BYTES:], header)) == [r.timestamp for r in records]
