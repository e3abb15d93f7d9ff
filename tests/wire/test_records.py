"""Test that record batches have the bytes that aiokafka and kafka-python write."""

import random
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as TheirBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from oncelog.wire.errors import InvalidRecord, KafkaError
from oncelog.wire.record_batch import check_crc, decode_header, rewrite_crc
from oncelog.wire.records import Record, decode_batch, encode_batch, encode_empty_batch

NOW_MS = 1_700_000_000_000
payload = st.none() | st.binary(max_size=200) | st.sampled_from([b"x" * n for n in (63, 64, 8192)])
headers = st.lists(
    st.tuples(st.text(max_size=70), st.none() | st.binary(max_size=70)), max_size=3
).map(tuple)

deltas = st.integers(-(2**40), 2**40) | st.sampled_from([-65, -64, 63, 64])


@st.composite
def record_lists(draw: st.DrawFn, gaps: bool = False) -> list[Record]:
    records: list[Record] = []
    offset = 0
    for _ in range(draw(st.integers(1, 5))):
        timestamp = NOW_MS + draw(
            st.integers(-(2**40), 2**40) | st.sampled_from([-65, -64, 63, 64])
        )
        records.append(Record(offset, timestamp, draw(payload), draw(payload), draw(headers)))
        offset += draw(st.sampled_from([1, 2, 64, 70_000])) if gaps else 1
    return records


def built(builder_class: Any, records: list[Record], compression: int = 0) -> bytes:
    builder = builder_class(
        magic=2,
        compression_type=compression,
        is_transactional=True,
        producer_id=7,
        producer_epoch=2,
        base_sequence=9,
        batch_size=10_000_000,
    )
    for r in records:
        builder.append(r.offset, r.timestamp, r.key, r.value, list(r.headers))
    return bytes(builder.build())


def ours(records: list[Record], compression: int = 0, leader_epoch: int = -1) -> bytes:
    return encode_batch(
        records,
        compression=compression,
        leader_epoch=leader_epoch,
        transactional=True,
        producer_id=7,
        producer_epoch=2,
        base_sequence=9,
    )


@settings(deadline=None)
@given(record_lists())
def test_record_batch_bytes_equal_the_bytes_of_aiokafka_and_kafka_python(
    records: list[Record],
) -> None:
    assert ours(records) == built(AiokafkaBuilder, records)
    assert ours(records, leader_epoch=0) == built(KafkaPythonBuilder, records)


@settings(deadline=None, max_examples=60)
@given(record_lists(), st.integers(1, 4))
def test_record_batch_with_each_codec_is_exchanged_with_aiokafka(
    records: list[Record], compression: int
) -> None:
    theirs = TheirBatch(ours(records, compression))
    read = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert read == records
    their_bytes = built(AiokafkaBuilder, records, compression)
    check_crc(their_bytes, 0, decode_header(their_bytes))
    assert decode_batch(their_bytes) == records


@settings(deadline=None)
@given(record_lists(gaps=True), st.integers(0, 2**50), st.integers(0, 4))
def test_record_batch_decodes_to_its_records_and_offsets(
    records: list[Record], base: int, compression: int
) -> None:
    records = [record._replace(offset=base + record.offset) for record in records]
    data = encode_batch(records, compression=compression, base_offset=base)
    assert decode_batch(b"before" + data, 6) == records
    header = decode_header(data)
    assert (header.base_offset, header.last_offset) == (base, records[-1].offset)
    assert header.max_timestamp == max(record.timestamp for record in records)


def test_record_batch_with_a_delete_horizon_keeps_its_record_timestamps() -> None:
    records = [Record(5, NOW_MS, b"k", None)]
    data = encode_batch(records, delete_horizon_ms=NOW_MS + 86_400_000)
    header = decode_header(data)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + 86_400_000
    assert decode_batch(data) == records


def test_record_batch_with_removed_records_keeps_its_last_offset() -> None:
    data = encode_batch([Record(12, 1, b"k", b"v")], base_offset=10, last_offset_delta=9)
    assert decode_header(data).last_offset == 19
    assert [record.offset for record in decode_batch(data)] == [12]


def test_record_batch_that_was_emptied_keeps_its_producer_fields() -> None:
    original = decode_header(ours([Record(at, NOW_MS, b"k", b"v") for at in range(4)], 2, 3))
    data = encode_empty_batch(original)
    header = decode_header(data)
    check_crc(data, 0, header)
    for name in ("base_offset", "last_offset", "producer_id", "producer_epoch", "last_sequence"):
        assert getattr(header, name) == getattr(original, name)
    assert header.is_transactional
    assert (header.record_count, header.compression, header.partition_leader_epoch) == (0, 0, 3)
    assert decode_batch(data) == []


# -- nonsense


def with_body(body: bytes, count: int, last_offset_delta: int = 5) -> bytes:
    data = bytearray(encode_empty_batch(decode_header(ours([Record(0, 1, None, None)]))) + body)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[23:27] = last_offset_delta.to_bytes(4, "big")
    data[57:61] = count.to_bytes(4, "big", signed=True)
    rewrite_crc(data)
    return bytes(data)


EMPTY_RECORD = bytes.fromhex("0c000000010100")  # length 6, delta 0, offset 0, null, null, none
SECOND_RECORD = bytes.fromhex("0c000002010100")


def test_record_of_the_smallest_size_is_decoded() -> None:
    assert decode_batch(with_body(EMPTY_RECORD + SECOND_RECORD, 2)) == [
        Record(0, -1, None, None),
        Record(1, -1, None, None),
    ]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        pytest.param(EMPTY_RECORD, 2, id="fewer records than announced"),
        pytest.param(EMPTY_RECORD + SECOND_RECORD, 1, id="more records than announced"),
        pytest.param(EMPTY_RECORD, -1, id="negative count"),
        pytest.param(EMPTY_RECORD, 2**31 - 1, id="huge count"),
        pytest.param(EMPTY_RECORD + EMPTY_RECORD, 2, id="offsets do not ascend"),
        pytest.param(bytes.fromhex("0c00000c010100"), 1, id="offset beyond the batch"),
        pytest.param(bytes.fromhex("0c000001010100"), 1, id="negative offset delta"),
        pytest.param(bytes.fromhex("0a000000010100"), 1, id="record too short"),
        pytest.param(bytes.fromhex("0e00000001010000"), 1, id="bytes inside after the headers"),
        pytest.param(bytes.fromhex("7e000000010100"), 1, id="record beyond the batch"),
        pytest.param(bytes.fromhex("0d000000010100"), 1, id="negative length"),
        pytest.param(bytes.fromhex("0c0000007e0100"), 1, id="key beyond the record"),
        pytest.param(bytes.fromhex("0c000000030100"), 1, id="key of length -2"),
        pytest.param(bytes.fromhex("0c000000010101"), 1, id="-1 headers"),
        pytest.param(bytes.fromhex("0c00000001017e"), 1, id="63 headers"),
        pytest.param(bytes.fromhex("1000000001010201") + b"\x01", 1, id="header without a name"),
        pytest.param(bytes.fromhex("12000000010102") + b"\x02\xff\x01", 1, id="name not UTF-8"),
        pytest.param(b"\xff" * 20, 1, id="varint without an end"),
    ],
)
def test_record_batch_with_malformed_records_or_a_wrong_count_is_refused(
    body: bytes, count: int
) -> None:
    with pytest.raises(InvalidRecord):
        decode_batch(with_body(body, count))


def test_record_batch_that_is_cut_short_is_refused() -> None:
    data = ours([Record(0, 1, b"k", b"v" * 100)])
    for end in range(len(data)):
        with pytest.raises(KafkaError):
            decode_batch(data[:end])


def test_record_batch_with_too_many_decompressed_bytes_is_refused() -> None:
    for compression in (1, 2, 3, 4):
        data = ours([Record(0, 1, None, bytes(1_000_000))], compression)
        assert decode_batch(data, max_decompressed_bytes=1_100_000)
        with pytest.raises(InvalidRecord):
            decode_batch(data, max_decompressed_bytes=999_999)


@pytest.mark.parametrize("compression", range(5))
def test_record_batch_with_any_damage_is_decoded_or_refused(compression: int) -> None:
    rng = random.Random(compression)
    records = [Record(at, NOW_MS + at, b"k" * at, b"v" * 30, (("h", b"x"),)) for at in range(9)]
    sound = ours(records, compression)
    refused = 0
    for _ in range(1500):
        data = bytearray(sound[: rng.randrange(61, len(sound) + 1)])
        data[8:12] = (len(data) - 12).to_bytes(4, "big")
        for _ in range(rng.choice([0, 1, 1, 3])):
            data[rng.randrange(21, len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
        try:
            decode_batch(data, max_decompressed_bytes=1 << 20)
        except KafkaError:
            refused += 1
    assert refused > 700
