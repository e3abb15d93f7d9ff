"""Test that a query cannot change the source's columns, since rows are built by position."""

from typing import Any

import pytest

from oncelog.pipeline.source.options import OptionError

types = pytest.importorskip("pyspark.sql.types")
data_source = pytest.importorskip("oncelog.pipeline.source.data_source")

PLAIN = {
    "key": types.BinaryType(),
    "value": types.BinaryType(),
    "topic": types.StringType(),
    "partition": types.IntegerType(),
    "offset": types.LongType(),
    "timestamp": types.TimestampType(),
    "timestampType": types.IntegerType(),
}
PAIR = types.StructType().add("key", types.StringType()).add("value", types.BinaryType())
HEADERS = {"headers": types.ArrayType(PAIR)}


def schema_of(columns: dict[str, Any]) -> Any:
    schema = types.StructType()
    for name, kind in columns.items():
        schema.add(name, kind)
    return schema


def readers(columns: dict[str, Any], **more: str) -> list[Any]:
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", **more}
    source = data_source.OncelogSource(options)
    return [source.reader(schema_of(columns)), source.streamReader(schema_of(columns))]


def test_source_with_a_schema_equal_to_its_columns_is_accepted() -> None:
    assert len(readers(PLAIN)) == len(readers(PLAIN | HEADERS, includeHeaders="TRUE")) == 2


@pytest.mark.parametrize(
    "columns",
    [
        {"value": PLAIN["value"], **PLAIN},  # and the key in its place
        {"value": PLAIN["value"]},
        PLAIN | {"value": types.StringType()},
        PLAIN | HEADERS,
        {},
    ],
    ids=["exchanged", "fewer", "another type", "headers not asked for", "none"],
)
def test_source_with_another_schema_is_refused(columns: dict[str, Any]) -> None:
    for kind in ("reader", "streamReader"):
        source = data_source.OncelogSource({"kafka.bootstrap.servers": "h:1", "subscribe": "t"})
        with pytest.raises(OptionError, match=r"fixed.*\.schema\(\.\.\.\).*key binary, value"):
            getattr(source, kind)(schema_of(columns))
