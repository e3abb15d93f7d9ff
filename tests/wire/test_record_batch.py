"""Test record batch headers, checksums, and the validation of batches from clients."""

import struct
from collections.abc import Callable

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from oncelog.wire import record_batch
from oncelog.wire.errors import CorruptMessage, ErrorCode, KafkaError
from oncelog.wire.record_batch import (
    HEADER_BYTES,
    SEQUENCE_MAX,
    BatchHeader,
    check_crc,
    decode_header,
    increment_sequence,
    iterate_batches,
    restamp,
    restamp_append_time,
    rewrite_crc,
    rewrite_producer,
    split_batches,
    validate_client_batch,
)
from oncelog.wire.records import Record, decode_batch, encode_batch

NOW_MS = 1_700_000_000_000
RECORDS = [Record(at, NOW_MS + at, b"key%d" % at, b"value") for at in range(3)]
BATCH = encode_batch(RECORDS)
MAX_BYTES = 1_048_588


def theirs(*, transactional: bool = False, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=transactional,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        batch_size=10_000,
    )
    for record in RECORDS:
        builder.append(record.offset, record.timestamp, record.key, record.value, [])
    return bytes(builder.build())


def test_batch_header_of_another_library_is_decoded_field_by_field() -> None:
    data = theirs(transactional=True, producer=(4711, 3, 20))
    header = decode_header(data)
    assert header._replace(crc=0) == BatchHeader(
        base_offset=0,
        batch_length=len(data) - 12,
        partition_leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=0x10,
        last_offset_delta=2,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS + 2,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=20,
        record_count=3,
    )
    assert header.is_transactional
    assert header.has_producer_id
    assert not header.is_control
    assert (header.last_offset, header.next_offset, header.last_sequence) == (2, 3, 22)
    assert header.size_bytes == len(data)
    check_crc(data, 0, header)
    assert validate_client_batch(memoryview(data), max_message_bytes=MAX_BYTES) == header


@pytest.mark.parametrize(
    ("attributes", "name"),
    [
        (0x08, "is_log_append_time"),
        (0x10, "is_transactional"),
        (0x20, "is_control"),
        (0x40, "has_delete_horizon"),
    ],
)
def test_each_batch_attribute_property_reads_its_own_bit(attributes: int, name: str) -> None:
    predicates = ["is_log_append_time", "is_transactional", "is_control", "has_delete_horizon"]
    header = decode_header(BATCH)._replace(attributes=attributes | 3)
    assert [p for p in predicates if getattr(header, p)] == [name]
    assert header.compression == 3


def test_batch_stamped_by_a_leader_keeps_a_valid_checksum() -> None:
    data = bytearray(b"--" + BATCH)
    restamp(data, 2, 1 << 40, 17)
    header = decode_header(data, 2)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 17)
    check_crc(data, 2, header)
    batch = DefaultRecordBatch(bytes(data[2:]))
    assert batch.validate_crc()
    assert [record.offset for record in batch] == [1 << 40, (1 << 40) + 1, (1 << 40) + 2]


def test_batch_with_log_append_time_has_that_time_in_every_record_and_a_new_checksum() -> None:
    data = bytearray(BATCH)
    restamp_append_time(data, 0, NOW_MS + 500)
    header = decode_header(data)
    check_crc(data, 0, header)
    assert header.is_log_append_time
    assert {record.timestamp for record in decode_batch(data)} == {NOW_MS + 500}
    assert {record.timestamp for record in DefaultRecordBatch(bytes(data))} == {NOW_MS + 500}


def test_batches_in_a_buffer_are_iterated_up_to_a_partial_last_batch() -> None:
    data = BATCH + BATCH + BATCH[:-1]
    assert [position for position, _ in iterate_batches(data)] == [0, len(BATCH)]
    assert [position for position, _ in iterate_batches(BATCH + BATCH[:60])] == [0]
    assert list(iterate_batches(b"")) == []


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_batch_iteration_at_an_impossible_length_raises_corrupt_message(length: int) -> None:
    data = bytearray(BATCH + BATCH)
    struct.pack_into(">i", data, len(BATCH) + 8, length)
    with pytest.raises(CorruptMessage):
        list(iterate_batches(data))


def test_batch_header_shorter_than_61_bytes_or_of_another_magic_is_corrupt() -> None:
    for data in (BATCH[:60], b"", BATCH[:16] + b"\x01" + BATCH[17:]):
        with pytest.raises(CorruptMessage):
            decode_header(data)


@given(st.integers(HEADER_BYTES - 40, len(BATCH) - 1), st.integers(1, 255))
def test_batch_with_a_flipped_byte_fails_its_checksum(at: int, flip: int) -> None:
    data = bytearray(BATCH)
    data[at] ^= flip
    with pytest.raises(CorruptMessage):
        check_crc(data, 0, decode_header(data))
    with pytest.raises(KafkaError):
        validate_client_batch(memoryview(data), max_message_bytes=MAX_BYTES)


# -- what Apache Kafka 4.3.0 answered to these record sets (Produce v9, topic with delete)


def changed(at: int, layout: str, value: int, *, crc: bool = True) -> bytes:
    data = bytearray(BATCH)
    struct.pack_into(layout, data, at, value)
    if crc:
        rewrite_crc(data)
    return bytes(data)


AS_KAFKA: list[tuple[str, bytes, ErrorCode]] = [
    ("sound", BATCH, ErrorCode.NONE),
    ("empty", b"", ErrorCode.INVALID_RECORD),
    ("16 bytes", BATCH[:16], ErrorCode.INVALID_RECORD),
    ("60 bytes", BATCH[:60], ErrorCode.INVALID_RECORD),
    ("header only", BATCH[:61], ErrorCode.INVALID_RECORD),
    ("cut short", BATCH[:-1], ErrorCode.INVALID_RECORD),
    ("two batches", BATCH + BATCH, ErrorCode.INVALID_RECORD),
    ("base offset 5", changed(0, ">q", 5), ErrorCode.INVALID_RECORD),
    ("leader epoch 9", changed(12, ">i", 9), ErrorCode.NONE),
    ("magic 0", changed(16, ">b", 0), ErrorCode.INVALID_RECORD),
    ("magic 1", changed(16, ">b", 1), ErrorCode.INVALID_RECORD),
    ("magic 3", changed(16, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
    ("magic -1", changed(16, ">b", -1), ErrorCode.CORRUPT_MESSAGE),
    ("crc", changed(17, ">I", 1, crc=False), ErrorCode.CORRUPT_MESSAGE),
    ("length 14", changed(8, ">i", 14, crc=False), ErrorCode.CORRUPT_MESSAGE),
    ("length -1", changed(8, ">i", -1, crc=False), ErrorCode.CORRUPT_MESSAGE),
    ("no records", changed(57, ">i", 0), ErrorCode.INVALID_RECORD),
    ("-1 records", changed(57, ">i", -1), ErrorCode.INVALID_RECORD),
    ("4 records over 3 offsets", changed(57, ">i", 4), ErrorCode.INVALID_RECORD),
    ("offset delta -1", changed(23, ">i", -1), ErrorCode.INVALID_RECORD),
    ("offset delta 9", changed(23, ">i", 9), ErrorCode.INVALID_RECORD),
    ("control", encode_batch(RECORDS, control=True), ErrorCode.INVALID_RECORD),
    (
        "producer id without sequence",
        encode_batch(RECORDS, producer_id=5, producer_epoch=0),
        ErrorCode.INVALID_RECORD,
    ),
    (
        "producer id -2",
        encode_batch(RECORDS, producer_id=-2, producer_epoch=0, base_sequence=0),
        ErrorCode.NONE,
    ),
    ("sequence without producer id", encode_batch(RECORDS, base_sequence=0), ErrorCode.NONE),
    ("append time", encode_batch(RECORDS, timestamp_type=1), ErrorCode.NONE),
    ("unknown attributes", changed(21, ">h", 0x4080), ErrorCode.NONE),
    (
        "too large",
        encode_batch([Record(0, 1, None, b"x" * 1_100_000)]),
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
]
# Kafka accepts the first three, but drops an incomplete second batch. It has no error code for
# the last.
STRICTER: list[tuple[str, bytes, ErrorCode]] = [
    ("a byte beyond", BATCH + b"x", ErrorCode.INVALID_RECORD),
    ("a cut second batch", BATCH + BATCH[:30], ErrorCode.INVALID_RECORD),
    (
        "producer id without epoch",
        encode_batch(RECORDS, producer_id=5, base_sequence=0),
        ErrorCode.INVALID_RECORD,
    ),
    (
        "transactional without producer id",
        encode_batch(RECORDS, transactional=True),
        ErrorCode.INVALID_RECORD,
    ),
    ("compression 5", changed(21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
]


@pytest.mark.parametrize(
    ("records", "code"),
    [pytest.param(records, code, id=name) for name, records, code in AS_KAFKA + STRICTER],
)
def test_batch_of_a_client_is_validated_as_by_apache_kafka_or_more_strictly(
    records: bytes, code: ErrorCode
) -> None:
    answer = ErrorCode.NONE
    try:
        validate_client_batch(memoryview(records), max_message_bytes=MAX_BYTES)
    except KafkaError as error:
        answer = error.code
    assert answer is code


def test_batch_size_limit_is_inclusive() -> None:
    validate_client_batch(memoryview(BATCH), max_message_bytes=len(BATCH))
    with pytest.raises(record_batch.MessageTooLarge):
        validate_client_batch(memoryview(BATCH), max_message_bytes=len(BATCH) - 1)


@pytest.mark.parametrize("cut", [bytes, bytearray, memoryview])
def test_batch_in_every_kind_of_buffer_is_accepted(cut: Callable[[bytes], bytes]) -> None:
    validate_client_batch(cut(BATCH), max_message_bytes=MAX_BYTES)
    assert decode_header(cut(BATCH)) == decode_header(BATCH)


@given(st.integers(0, SEQUENCE_MAX), st.integers(0, SEQUENCE_MAX))
def test_batch_sequences_wrap_after_the_largest_int(sequence: int, by: int) -> None:
    assert increment_sequence(sequence, by) == (sequence + by) % 2**31
    header = decode_header(BATCH)._replace(base_sequence=sequence, last_offset_delta=by)
    assert header.last_sequence == (sequence + by) % 2**31


def test_batch_rewritten_for_another_producer_id_equals_a_batch_encoded_with_that_id():
    batch = bytearray(encode_batch(RECORDS, producer_id=5, producer_epoch=1, base_sequence=9))
    rewrite_producer(batch, 2**40, 7, 3)
    assert batch == encode_batch(RECORDS, producer_id=2**40, producer_epoch=7, base_sequence=3)


@pytest.mark.parametrize("sizes", [[], [1], [5, 1, 3], [200] * 3, [1] * 50])
@pytest.mark.parametrize("cut", [0, 1, 30, 70])
def test_batch_buffer_is_split_only_between_batches(sizes, cut):
    whole = [encode_batch([Record(0, 1, None, b"v" * size)]) for size in sizes]
    data = b"".join(whole)[: len(b"".join(whole)) - cut or None] if whole else b""
    for batches_max, bytes_max in ((1, 1 << 20), (4, 1 << 20), (100, 150), (1, 1)):
        pieces = [bytes(piece) for piece in split_batches(data, batches_max, bytes_max)]
        assert b"".join(pieces) == data
        found = [[p for p, _ in iterate_batches(piece)] for piece in pieces]
        assert sum(map(len, found)) == len(list(iterate_batches(data)))
        for piece, batches in zip(pieces[:-1], found, strict=False):
            assert len(piece) <= bytes_max or len(batches) == 1
        assert all(len(at) <= batches_max for at in found)
