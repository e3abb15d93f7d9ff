"""Test that batches of the log become Arrow batches with exactly the schema of Spark."""

import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from oncelog.client.fetch.record_columns import RecordColumns, read_columns
from oncelog.pipeline.source import arrow_rows
from oncelog.pipeline.source.arrow_rows import ArrowRows
from oncelog.pipeline.source.columns import HEADERS, schema_of
from oncelog.wire.control_record import ControlType, encode_marker
from oncelog.wire.errors import InvalidRecord
from oncelog.wire.record_batch import decode_header
from oncelog.wire.records import Record, encode_batch

types = pytest.importorskip("pyspark.sql.types")
pandas_types = pytest.importorskip("pyspark.sql.pandas.types")
TIME_MS = 1_577_836_800_123
TIME = datetime.datetime(2020, 1, 1, 0, 0, 0, 123_000, datetime.UTC)
KINDS = {
    "binary": types.BinaryType(),
    "string": types.StringType(),
    "int": types.IntegerType(),
    "long": types.LongType(),
    "boolean": types.BooleanType(),
    "timestamp_ltz": types.TimestampType(),
}


def schema(*, raw: bool = False, headers: bool = False) -> pa.Schema:
    """Return the Arrow schema that Spark creates for the source's columns."""
    made = types.StructType()
    for column in (
        schema_of(raw=raw, headers=headers).replace(HEADERS, "headers headers").split(",")
    ):
        name, kind = column.split()
        if kind == "headers":
            pair = types.StructType().add("key", KINDS["string"]).add("value", KINDS["binary"])
            made.add(name, types.ArrayType(pair))
        else:
            made.add(name, KINDS[kind])
    return pandas_types.to_arrow_schema(made, timezone="UTC")


def columns_of(batch: bytes, topic: str = "t", partition: int = 3) -> RecordColumns:
    return read_columns(topic, partition, batch, 0, decode_header(batch))


def batch_of(first: int, *values: bytes | None, **more: object) -> RecordColumns:
    records = [Record(first + i, TIME_MS + i, b"k%d" % i, v) for i, v in enumerate(values)]
    return columns_of(encode_batch(records, **more))  # type: ignore[arg-type]


def test_arrow_rows_of_plain_records_have_the_columns_of_spark() -> None:
    rows = ArrowRows(schema(), is_raw=False)
    assert not rows.add(batch_of(10, b"a", None))
    thinned = encode_batch([Record(20, TIME_MS, None, b"c"), Record(23, TIME_MS, b"", b"")])
    rows.add(columns_of(thinned))
    rows.add(batch_of(30, b"late", timestamp_type=1))
    taken = rows.take()
    assert taken is not None and taken.schema.equals(schema())
    table = taken.to_pydict()
    assert table["key"] == [b"k0", b"k1", None, b"", b"k0"]
    assert table["value"] == [b"a", None, b"c", b"", b"late"]
    assert table["offset"] == [10, 11, 20, 23, 30]
    assert set(table["topic"]) == {"t"} and set(table["partition"]) == {3}
    assert table["timestamp"][:2] == [TIME, TIME + datetime.timedelta(milliseconds=1)]
    assert table["timestampType"] == [0, 0, 0, 0, 1]
    assert rows.take() is None, "what was taken is gone"


def test_arrow_timestamp_out_of_range_is_refused_or_null_in_raw_rows() -> None:
    """A producer may set nanoseconds, and a Kafka before 4.0 accepts them."""
    rows = ArrowRows(schema(), is_raw=False)
    for time_ms in (arrow_rows.TIME_MS_MAX, -1):
        rows.add(columns_of(encode_batch([Record(4, time_ms, None, b"v")])))
    taken = rows.take()
    assert taken is not None
    assert pc.cast(taken.column("timestamp"), pa.int64()).to_pylist() == [
        arrow_rows.TIME_MS_MAX * 1000,
        -1000,
    ]
    rows.add(columns_of(encode_batch([Record(5, TIME_MS * 1_000_000, None, b"v")])))
    with pytest.raises(
        InvalidRecord, match=f"t/3: the record at offset 5 has.* {TIME_MS}000000 ms"
    ):
        rows.take()
    raw = ArrowRows(schema(raw=True), is_raw=True)
    raw.add(columns_of(encode_batch([Record(5, TIME_MS * 1_000_000, None, b"v")])))
    taken = raw.take()
    assert taken is not None and taken.column("timestamp").null_count == 1


def test_arrow_row_without_headers_has_null_headers() -> None:
    rows = ArrowRows(schema(headers=True), is_raw=False)
    named = Record(5, TIME_MS, None, b"v", (("a", b"1"), ("a", None)))
    rows.add(columns_of(encode_batch([Record(4, TIME_MS, None, b"w"), named])))
    taken = rows.take()
    assert taken is not None and taken.schema.equals(schema(headers=True))
    pairs = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert taken.to_pydict()["headers"] == [None, pairs]
    rows.add(batch_of(6, b"x"))
    without = rows.take()
    assert without is not None and without.to_pydict()["headers"] == [None]


def test_arrow_row_with_a_header_name_outside_utf8_is_readable() -> None:
    """Any bytes may be a header name in librdkafka. Java's clients also show invalid bytes as
    U+FFFD.
    """
    batch = encode_batch([Record(5, TIME_MS, None, b"v", (("ab", b"1"),))])
    batch = batch.replace(b"\x04ab", b"\x04\xff\xfe")
    rows = ArrowRows(schema(), is_raw=False)
    rows.add(columns_of(batch))
    taken = rows.take()
    assert taken is not None and taken.column("value").to_pylist() == [b"v"]
    rows = ArrowRows(schema(headers=True), is_raw=False)
    rows.add(columns_of(batch))
    taken = rows.take()
    assert taken is not None
    assert taken.column("headers").to_pylist() == [[{"key": "\ufffd\ufffd", "value": b"1"}]]


def test_arrow_raw_rows_have_producer_sequence_and_marker_columns() -> None:
    rows = ArrowRows(schema(raw=True), is_raw=True)
    wrapping = dict(producer_id=7, producer_epoch=2, base_sequence=2**31 - 1, transactional=True)
    rows.add(batch_of(10, b"a", b"b", leader_epoch=4, **wrapping), replica=2)
    rows.add(batch_of(12, b"c"), replica=2)
    for kind in (ControlType.COMMIT, ControlType.ABORT):
        marker = encode_marker(
            kind,
            producer_id=7,
            producer_epoch=2,
            coordinator_epoch=9,
            timestamp_ms=TIME_MS,
            base_offset=13 + kind,
        )
        rows.add(columns_of(marker))
    taken = rows.take()
    assert taken is not None and taken.schema.equals(schema(raw=True))
    table = taken.to_pydict()
    assert table["sequence"] == [2**31 - 1, 0, -1, -1, -1]
    assert table["producer_id"] == [7, 7, -1, 7, 7]
    assert table["producer_epoch"] == [2, 2, -1, 2, 2]
    assert table["is_transactional"] == [True, True, False, True, True]
    assert table["is_control"] == [False, False, False, True, True]
    assert table["control_type"] == [None, None, None, "commit", "abort"]
    assert table["coordinator_epoch"] == [None, None, None, 9, 9]
    assert table["leader_epoch"] == [4, 4, -1, -1, -1]
    assert table["replica"] == [2, 2, 2, None, None]
    assert table["batch_crc"][0] == table["batch_crc"][1] > 0
    assert table["value"][:3] == [b"a", b"b", b"c"]
    assert table["timestamp"][0] == TIME


def test_arrow_rows_are_ready_at_enough_rows_or_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_rows, "ROWS_MAX", 3)
    for rows in (ArrowRows(schema(), is_raw=False), ArrowRows(schema(raw=True), is_raw=True)):
        assert not rows.add(batch_of(0, b"a", b"b"))
        assert rows.add(batch_of(2, b"c"))
    monkeypatch.setattr(arrow_rows, "BYTES_MAX", 100)
    for rows in (ArrowRows(schema(), is_raw=False), ArrowRows(schema(raw=True), is_raw=True)):
        assert rows.add(batch_of(0, b"a" * 100))
        rows.take()
        assert rows.add(batch_of(0, b"a" * 100, compression=4)), "it counts what comes out"


def test_arrow_rows_of_a_range_exclude_records_outside_it() -> None:
    rows = ArrowRows(schema(), is_raw=False)
    whole = batch_of(10, b"a", b"b", b"c", b"d")
    rows.add(whole.between(11, 13))
    rows.add(whole.between(14, 20))
    taken = rows.take()
    assert taken is not None and taken.to_pydict()["offset"] == [11, 12]
