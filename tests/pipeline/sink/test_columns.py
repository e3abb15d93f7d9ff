"""Test which columns of a row the sink accepts, and the records that it writes."""

import pyarrow as pa
import pytest

from oncelog.pipeline.sink.columns import check_columns, rows_by_topic

HEADERS = "array<struct<key:string,value:binary>>"


@pytest.mark.parametrize(
    ("types", "topic", "words"),
    [
        ({"key": "string"}, "t", "column `value`"),
        ({"value": "string", "id": "int"}, "t", "no column id"),
        ({"value": "int"}, "t", "value is int"),
        ({"value": "binary", "key": "bigint"}, "t", "key is bigint"),
        ({"value": "binary", "partition": "bigint"}, "t", "partition is bigint"),
        ({"value": "binary", "timestamp": "bigint"}, "t", "timestamp is bigint"),
        ({"value": "binary", "headers": "array<string>"}, "t", "headers is array<string>"),
        ({"value": "binary", "topic": "int"}, None, "topic is int"),
        ({"value": "binary"}, None, "no topic"),
    ],
)
def test_sink_columns_that_cannot_be_written_are_named(
    types: dict[str, str], topic: str | None, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        check_columns(types, topic)


def test_sink_accepts_the_columns_of_the_kafka_sink() -> None:
    check_columns({"value": "string"}, "t")
    every = {"value": "binary", "key": "string", "topic": "string", "partition": "int"}
    check_columns(every | {"headers": HEADERS, "timestamp": "timestamp"}, None)


def test_sink_rows_go_to_their_topics_in_order() -> None:
    batch = pa.RecordBatch.from_pydict({
        "value": [b"1", b"2", b"3"], "topic": ["b", "a", "b"], "partition": [0, None, 2],
    })  # fmt: skip
    found = {
        name: (columns["values"].to_pylist(), columns["partition"])
        for name, columns in rows_by_topic(batch, None)
    }
    assert found == {"b": ([b"1", b"3"], [0, 2]), "a": ([b"2"], [-1])}


def test_sink_rows_keep_their_headers_and_timestamps() -> None:
    batch = pa.RecordBatch.from_pydict({
        "value": [b"1", None],
        "key": [None, b"k"],
        "headers": [[{"key": "h", "value": b"x"}, {"key": "n", "value": None}], None],
        "timestamp": pa.array([1_700_000_000_000, None], pa.int64()),
    })  # fmt: skip
    ((name, columns),) = rows_by_topic(batch, "t")
    assert name == "t"
    assert columns["headers"] == [(("h", b"x"), ("n", None)), ()]
    assert columns["timestamp_ms"][0] == 1_700_000_000_000
    assert columns["timestamp_ms"][1] > 1_700_000_000_000
    assert columns["values"].to_pylist() == [b"1", None]
    assert columns["keys"].to_pylist() == [None, b"k"]


def test_sink_row_without_a_topic_is_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"1"], "topic": pa.array([None], pa.string())})
    with pytest.raises(ValueError, match="has no topic"):
        list(rows_by_topic(batch, None))


HEADERS_KIND = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize("pair", [None, {"key": None, "value": b"x"}])
def test_sink_row_with_an_unnamed_header_is_refused_with_a_clear_message(pair: object) -> None:
    column = pa.array([None, [{"key": "h", "value": None}], [pair]], HEADERS_KIND)
    batch = pa.RecordBatch.from_arrays([pa.array([b"1"] * 3), column], names=["value", "headers"])
    assert len(list(rows_by_topic(batch.slice(0, 2), "t"))) == 1
    with pytest.raises(ValueError, match="has a header without a name"):
        list(rows_by_topic(batch.slice(1), "t"))


def test_sink_row_with_a_partition_below_zero_is_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"1", b"2"], "partition": [0, -1]})
    with pytest.raises(ValueError, match=r"has partition -1; .*null leaves it to the partitioner"):
        list(rows_by_topic(batch, "t"))
