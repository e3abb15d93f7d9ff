"""Test that transaction markers have Kafka's bytes, and that other batches are no markers."""

import struct
from collections.abc import Callable

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from oncelog.wire.control_record import ControlType, _any_marker, decode_marker, encode_marker
from oncelog.wire.errors import InvalidRecord, KafkaError
from oncelog.wire.record_batch import check_crc, decode_header
from oncelog.wire.records import Record, encode_batch

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize("control_type", list(ControlType))
@pytest.mark.parametrize("coordinator_epoch", [-1, 0, 12, 2**31 - 1])
def test_transaction_marker_is_decoded_as_encoded_and_has_the_size_of_kafka(
    control_type: ControlType, coordinator_epoch: int
) -> None:
    data = encode_marker(
        control_type,
        producer_id=4711,
        producer_epoch=3,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=NOW_MS,
        base_offset=99,
        leader_epoch=5,
    )
    assert len(data) == 78  # EndTxnMarker: 61 + length 1, 16 fixed by the key and the value
    header = decode_header(data)
    check_crc(data, 0, header)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4711, 3, -1)
    assert (header.base_offset, header.next_offset) == (99, 100)
    assert header.max_timestamp == NOW_MS
    assert decode_marker(data) == (control_type, coordinator_epoch)
    assert decode_marker(b"xx" + data, 2) == (control_type, coordinator_epoch)


def test_transaction_marker_is_read_by_other_libraries() -> None:
    data = encode_marker(
        ControlType.COMMIT,
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=7,
        timestamp_ms=NOW_MS,
    )
    batch = DefaultRecordBatch(data)
    assert batch.is_control_batch
    (record,) = batch
    assert record.key == bytes.fromhex("00000001")
    assert record.value == bytes.fromhex("000000000007")


def test_transaction_marker_with_a_longer_later_version_is_decoded() -> None:
    """Versions may only add fields (KIP-98), so the known fields come first."""
    key, value = bytes.fromhex("0005 0001 ff"), bytes.fromhex("0003 00000009 ffff")
    data = encode_batch([Record(0, 1, key, value)], control=True, transactional=True)
    assert decode_marker(data) == (ControlType.COMMIT, 9)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, bytes(6)),
        (bytes(4), None),
        (bytes(3), bytes(6)),
        (bytes(4), bytes(5)),
        (bytes.fromhex("00000002"), bytes(6)),  # a snapshot header of KRaft
        (bytes.fromhex("ffff0001"), bytes(6)),
    ],
)
def test_control_record_that_is_malformed_or_of_another_type_is_refused_as_a_marker(
    key: bytes | None, value: bytes | None
) -> None:
    data = encode_batch([Record(0, 1, key, value)], control=True, transactional=True)
    with pytest.raises(InvalidRecord):
        decode_marker(data)


def test_control_batch_with_two_records_is_refused_as_a_marker() -> None:
    record = Record(0, 1, bytes(4), bytes(6))
    data = encode_batch([record, record._replace(offset=1)], control=True, transactional=True)
    with pytest.raises(InvalidRecord):
        decode_marker(data)


EPOCHS = st.integers(-(2**31), 2**31 - 1)


@given(st.sampled_from(ControlType), st.integers(0, 2**62), st.integers(0, 2**15 - 1), EPOCHS)
def test_transaction_marker_bytes_equal_the_general_encoder_bytes(
    control_type: ControlType, number: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    value = struct.pack(">hi", 0, coordinator_epoch)
    record = Record(number, NOW_MS, struct.pack(">hh", 0, control_type), value)
    assert encode_marker(
        control_type,
        producer_id=number,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=NOW_MS,
        base_offset=number,
        leader_epoch=5,
    ) == encode_batch(
        [record],
        leader_epoch=5,
        transactional=True,
        control=True,
        producer_id=number,
        producer_epoch=producer_epoch,
    )


@given(
    EPOCHS,
    st.lists(st.tuples(st.integers(0, 77), st.integers(0, 255)), max_size=3),
    st.integers(0, 80),
)
def test_transaction_marker_of_any_bytes_is_decoded_like_a_general_batch(
    coordinator_epoch: int, changes: list[tuple[int, int]], size_bytes: int
) -> None:
    """Markers have a fast decoder for the usual form, and otherwise the general one is used."""
    data = bytearray(
        encode_marker(
            ControlType.COMMIT,
            producer_id=4711,
            producer_epoch=3,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=NOW_MS,
        )
    )
    for position, byte in changes:
        data[position] = byte
    for found in (bytes(data), bytes(data[:size_bytes])):
        assert _outcome(decode_marker, found) == _outcome(_any_marker, found)


def _outcome(
    decode: Callable[[bytes, int], tuple[ControlType, int]], data: bytes
) -> tuple[ControlType, int] | str:
    try:
        return decode(data, 0)
    except KafkaError as error:
        return repr(error)
