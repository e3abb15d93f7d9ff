"""Test the conversion of JSON to values of an Avro schema."""

import io
import json
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.cli.records.json_lines import compact

pytest.importorskip("fastavro", reason="the extra `schema` is not installed")

from fastavro import schemaless_reader, schemaless_writer

from oncelog.cli.records.avro_values import AvroSchema

LEAF = {"type": "record", "name": "shop.Leaf", "fields": [{"name": "n", "type": "int"}]}
TREE = {
    "type": "record", "name": "Tree", "namespace": "shop",
    "fields": [{"name": "sub", "type": ["null", "Tree"]}, {"name": "tag", "type": "string"}],
}  # fmt: skip


def schema_of(content: Any, *references: Any) -> AvroSchema:
    return AvroSchema(
        SimpleNamespace(schema_str=json.dumps(content), references=references),
        lambda reference: SimpleNamespace(schema_str=reference.text, references=()),
    )


def logical(kind: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


@pytest.mark.parametrize(
    ("schema", "content"),
    [
        ("string", "tea"),
        ("null", None),
        ("double", 1.5),
        ("bytes", "/wA="),
        ({"type": "fixed", "name": "F", "size": 2}, "/wA="),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
        ({"type": "array", "items": "bytes"}, ["/wA=", ""]),
        ({"type": "map", "values": ["null", "long"]}, {"a": None, "b": 7}),
        (TREE, {"sub": {"sub": None, "tag": "in"}, "tag": "out"}),
        (logical("int", "date"), "2026-01-31"),
        (logical("int", "time-millis"), "12:00:00.250000"),
        (logical("long", "time-micros"), "12:00:00.000007"),
        (logical("long", "timestamp-millis"), "2026-01-31T12:00:00+00:00"),
        (logical("long", "timestamp-micros"), "2026-01-31T12:00:00.000007+00:00"),
        (logical("long", "local-timestamp-millis"), "2026-01-31T12:00:00"),
        (logical("bytes", "decimal", precision=6, scale=2), "12.34"),
        (logical("string", "uuid"), "6f1c2a34-0d4b-4f38-9a55-0f7a8f5f3a10"),
        (["null", "string", "long"], 7),
        (["int", "string"], "tea"),
    ],
)
def test_avro_value_written_from_json_is_printed_as_the_same_json(
    schema: Any, content: Any
) -> None:
    avro = schema_of(schema)
    out = io.BytesIO()
    schemaless_writer(out, avro.parsed, avro.value(content))
    out.seek(0)
    assert json.loads(compact(schemaless_reader(out, avro.parsed, None))) == content


def test_avro_union_value_with_a_named_branch_has_that_branch() -> None:
    avro = schema_of(["int", "long", "bytes"])
    assert avro.value({"long": 7}) == ("long", 7)
    assert avro.value(7) == ("int", 7)
    assert avro.value(2**40) == ("long", 2**40)
    assert avro.value({"bytes": "/wA="}) == ("bytes", b"\xff\0")


def test_avro_reference_to_another_schema_is_resolved() -> None:
    leaf = SimpleNamespace(name="shop.Leaf", text=json.dumps(LEAF))
    both = [{"n": 1}, {"n": 2}]
    avro = schema_of({"type": "array", "items": "shop.Leaf"}, leaf)
    assert avro.value(both) == both
    out = io.BytesIO()
    schemaless_writer(out, avro.parsed, avro.value(both))
    assert out.getvalue() == b"\4\2\4\0"


def test_avro_schema_with_endless_references_is_refused() -> None:
    def another(reference: Any) -> Any:
        further = SimpleNamespace(name=reference.name + "x")
        return SimpleNamespace(schema_str='"int"', references=[further])

    with pytest.raises(ValueError, match="more than 1000 schemas"):
        AvroSchema(another(SimpleNamespace(name="a")), another)


@pytest.mark.parametrize(
    ("schema", "content", "words"),
    [
        (LEAF, 7, "it is no object, which shop.Leaf is"),
        (LEAF, {"n": 1, "x": 2}, "it has a field 'x', which shop.Leaf has not"),
        (LEAF, {}, "it lacks the field 'n' of shop.Leaf"),
        (LEAF, {"n": 2**40}, "it.n is no int"),
        (LEAF, {"n": True}, "it.n is no int"),
        ({"type": "array", "items": "bytes"}, ["!"], r"it\[0\] is not in base64"),
        ({"type": "array", "items": "int"}, {"a": 1}, "it is no array"),
        (logical("int", "date"), "soon", "it is no date"),
        (logical("bytes", "decimal", precision=6, scale=2), "1,5", "it is no decimal"),
        (["null", "long"], "tea", "it is none of null, long"),
    ],
)
def test_avro_value_outside_its_schema_raises_an_error_that_names_the_field(
    schema: Any, content: Any, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        schema_of(schema).value(content)
