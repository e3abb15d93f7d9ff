"""Rows for the sink, with the columns of Spark's Kafka sink, and a timestamp.

    value      binary or text; null is a tombstone                    required
    key        binary or text
    topic      text; required if the sink has no topic
    partition  int; without it, or null, Kafka's partitioner decides
    headers    array<struct<key: string, value: binary>>
    timestamp  timestamp of the record; by default the time of writing

`prepare` converts a data frame to this form before it is sent to the workers. `rows_by_topic`
splits the Arrow batches in the workers. A topic of the sink overrides the column, as in Spark.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

ANYWHERE = -1  # the partition for `send_many` to choose
KNOWN = ("value", "key", "topic", "partition", "headers", "timestamp")
BYTES = {"binary", "string"}
OTHERS = (
    ("topic", "string"),
    ("partition", "int"),
    ("timestamp", "timestamp"),
    ("headers", "array<struct<key:string,value:binary>>"),
)


def check_columns(types: dict[str, str], topic: str | None) -> None:
    """Raise ValueError when rows with these columns (name: Spark's type) cannot be written."""
    unknown = [name for name in types if name not in KNOWN]
    if unknown:
        raise ValueError(
            f"the sink has no column {', '.join(unknown)}; it knows {', '.join(KNOWN)}. "
            "Put what a record says into value, e.g. to_json(struct(*)) AS value"
        )
    if "value" not in types:
        raise ValueError("a column `value` (binary or string) is missing")
    for name in ("value", "key"):
        if types.get(name, "binary") not in BYTES:
            raise ValueError(f"column {name} is {types[name]}; it has to be binary or string")
    for name, wanted in OTHERS:
        if types.get(name, wanted) != wanted:
            raise ValueError(f"column {name} is {types[name]}; it has to be {wanted}")
    if topic is None and "topic" not in types:
        raise ValueError("no topic: give the sink one (topic=...), or the rows a column `topic`")


def prepare(frame: "DataFrame", topic: str | None) -> "DataFrame":
    """Return the frame with the sink's columns only, or raise ValueError for wrong columns."""
    types = {each.name: each.dataType.simpleString() for each in frame.schema.fields}
    check_columns(types, topic)
    prepared = {name: f"`{name}`" for name in KNOWN if name in types}
    if topic is not None:
        prepared.pop("topic", None)
    for name in prepared.keys() & {"value", "key"}:
        prepared[name] = f"CAST(`{name}` AS BINARY)"
    if "timestamp" in types:
        prepared["timestamp"] = "unix_millis(`timestamp`)"
    # This is one call into the JVM, while each function of a Column is a dozen calls.
    return frame.selectExpr(*(f"{column} AS `{name}`" for name, column in prepared.items()))


def rows_by_topic(
    batch: "pa.RecordBatch", topic: str | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of each topic, as arguments of `Producer.send_many`."""
    if topic is not None:
        yield topic, _arguments(batch)
        return
    import pyarrow.compute as pc

    compute: Any = pc  # its functions exist only after the import
    names = batch.column("topic")
    for name in names.unique().to_pylist():
        if name is None:
            raise ValueError("a row has no topic: the column is null, and the sink was given none")
        yield name, _arguments(batch.filter(compute.equal(names, name)))


def _arguments(batch: "pa.RecordBatch") -> dict[str, Any]:
    names = batch.schema.names
    found: dict[str, Any] = {"values": batch.column("value")}
    if "key" in names:
        found["keys"] = batch.column("key")
    if "partition" in names:
        found["partition"] = _partitions(batch.column("partition"))
    if "timestamp" in names:
        found["timestamp_ms"] = _times(batch.column("timestamp"))
    if "headers" in names:
        found["headers"] = _headers(batch.column("headers"))
    return found


def _partitions(column: "pa.Array") -> list[int]:
    import pyarrow.compute as pc

    compute: Any = pc
    least = compute.min(column).as_py()
    if least is not None and least < 0:
        raise ValueError(
            f"a row has partition {least}; they begin at 0, and null leaves it to the partitioner"
        )
    return compute.fill_null(column, ANYWHERE).to_pylist()


def _headers(column: Any) -> list[tuple[tuple[str, bytes | None], ...]]:
    if column.flatten().flatten()[0].null_count:  # names, with null for pairs that are null
        raise ValueError("a row has a header without a name: its pair, or the pair's key, is null")
    return [tuple((h["key"], h["value"]) for h in row or ()) for row in column.to_pylist()]


def _times(column: "pa.Array") -> list[int]:
    import time

    import pyarrow.compute as pc

    if column.null_count:
        column = pc.fill_null(column, time.time_ns() // 1_000_000)
    return column.to_pylist()
