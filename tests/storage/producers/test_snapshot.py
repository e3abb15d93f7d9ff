"""Test that producer snapshots have Kafka's bytes, and that damaged snapshots are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.storage.producers.snapshot import (
    CorruptSnapshot,
    ProducerSnapshotEntry,
    decode,
    encode,
)

INT16, INT32, INT64 = (st.integers(-(2**b), 2**b - 1) for b in (15, 31, 63))
ENTRIES = st.lists(
    st.builds(ProducerSnapshotEntry, INT64, INT16, INT32, INT64, INT32, INT64, INT32, INT64),
    max_size=5,
)
ONE = ProducerSnapshotEntry(
    producer_id=4000,
    producer_epoch=3,
    last_sequence=41,
    last_offset=1041,
    offset_delta=9,
    timestamp=1_700_000_000_000,
    coordinator_epoch=12,
    current_transaction_first_offset=-1,
)


def test_producer_snapshot_bytes_equal_the_kafka_bytes():
    assert encode([ONE]).hex() == (
        "0001" "59edeb9a" "00000001" "0000000000000fa0" "0003" "00000029" "0000000000000411"
        "00000009" "0000018bcfe56800" "0000000c" "ffffffffffffffff"
    )  # fmt: skip


@given(ENTRIES)
def test_producer_snapshot_decodes_to_its_entries(entries):
    assert decode(encode(entries)) == sorted(entries)


@given(st.permutations([ONE._replace(producer_id=n) for n in range(4)]))
def test_producer_snapshots_of_equal_states_are_equal_bytes(entries):
    assert encode(entries) == encode(sorted(entries))


@given(st.data())
def test_producer_snapshot_with_a_changed_byte_is_refused(data):
    content = bytearray(encode([ONE, ONE._replace(producer_id=5)]))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptSnapshot, match=r"dir/7\.snapshot.*deleted"):
        decode(bytes(content), "dir/7.snapshot")


@given(st.integers(0, 101))
def test_producer_snapshot_that_is_cut_short_is_refused(length):
    content = encode([ONE, ONE._replace(producer_id=5)])
    assert len(content) == 102
    with pytest.raises(CorruptSnapshot):
        decode(content[:length])


def test_producer_snapshot_with_trailing_bytes_is_refused():
    with pytest.raises(CorruptSnapshot):
        decode(encode([ONE]) + b"\0")
