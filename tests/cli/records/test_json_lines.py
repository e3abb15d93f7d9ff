"""Test the conversion of records to lines of JSON and back."""

import json
import uuid
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.cli.records.json_lines import (
    Decoded,
    NotARecord,
    as_text,
    compact,
    fields_of,
    parsed,
    record_of,
)
from oncelog.client.consumer import ConsumerRecord

data = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)
headers = st.lists(st.tuples(st.text(max_size=5), data), max_size=3).map(tuple)


@given(data, data, headers, st.integers(0, 2**40))
def test_json_line_of_a_record_is_parsed_back_byte_for_byte(key, value, headers, timestamp):
    record = ConsumerRecord("t", 3, 17, timestamp, key, value, headers)
    back = record_of(json.dumps(fields_of(record)).encode())
    assert back == (key, value, headers, 3, timestamp)


def test_json_line_of_bytes_outside_utf8_contains_base64_and_names_the_encoding():
    fields = fields_of(ConsumerRecord("t", 0, 1, 2, b"k", b"\xff", (("h", b"\xfe"), ("h", b"x"))))
    assert (fields["value"], fields["value_encoding"]) == ("/w==", "base64")
    assert "key_encoding" not in fields
    assert fields["headers"] == [
        {"name": "h", "value": "/g==", "value_encoding": "base64"},
        {"name": "h", "value": "x"},
    ]


def test_json_line_of_a_decoded_json_value_is_parsed_back_as_json():
    record = ConsumerRecord("t", 0, 1, 2, b"ab", b' {"a": [1, null]}', ())
    fields = fields_of(record, Decoded("6162", "hex"), Decoded({"a": [1, None]}, "json"))
    assert fields["value"] == {"a": [1, None]}
    back = record_of(json.dumps(fields).encode())
    assert (back.key, back.value) == (b"ab", b'{"a":[1,null]}')
    null = fields_of(record, None, Decoded(None, "json"))
    assert record_of(json.dumps(null).encode()).value == b"null"


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ('{"value": "v"}', None, b"v"),
        ('{"key": "k", "value": null}', b"k", None),
        ('{"value": {"a": 1}}', None, b'{"a":1}'),
        ('{"key": 5, "value": "v", "headers": {"a": "b"}}', b"5", b"v"),
    ],
)
def test_json_line_written_by_hand_is_parsed_as_a_record(line, key, value):
    found = record_of(line.encode())
    assert (found.key, found.value, found.partition, found.timestamp_ms) == (key, value, None, None)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("plain", "no JSON"),
        ('"text"', "no JSON object"),
        ('{"valeu": "v"}', "no field 'valeu'"),
        ('{"value": "v", "value_encoding": "base64"}', "not in base64"),
        ('{"value": "v", "value_encoding": "rot13"}', "rot13"),
        ('{"value": 1, "value_encoding": "hex"}', "a text"),
        ('{"value": "v", "partition": -1}', "partition"),
        ('{"value": "v", "partition": true}', "partition"),
        ('{"value": "v", "timestamp": "now"}', "timestamp"),
        ('{"value": "v", "headers": ["a"]}', "a header is"),
        ('{"value": "v", "headers": "a"}', "headers are"),
        ('{"value": "v", "headers": [{"name": 1}]}', "a header is"),
        ('{"value": "v", "timestamp": 9223372036854775808}', "timestamp is a number from 0 to"),
        ('{"value": "v", "partition": 2147483648}', "partition is a number from 0 to"),
        ('{"value": "v", "headers": {"\\ud800": "w"}}', "a header's name is not in utf-8"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_json_line_without_a_record_is_refused_with_a_clear_message(line, words):
    with pytest.raises(NotARecord, match=words):
        record_of(line.encode())


def test_json_line_with_half_a_surrogate_pair_keeps_its_escape():
    half = b'{"a":"\\ud800"}'
    assert compact(parsed(half)).encode() == half
    assert record_of(b'{"value": ' + half + b"}").value == half


def test_json_line_of_avro_values_without_a_json_type_shows_the_values_as_text():
    """The decoder of a registry returns dates, decimals, UUIDs and bytes for logical types."""
    at, number = datetime(2026, 1, 31, 12, tzinfo=UTC), uuid.UUID(int=7)
    content = {"at": at, "price": Decimal("1.50"), "id": number, "photo": b"\xff"}
    fields = fields_of(ConsumerRecord("t", 0, 1, 2, None, b"", ()), None, Decoded(content, "json"))
    assert json.loads(json.dumps(fields, default=as_text))["value"] == {
        "at": "2026-01-31T12:00:00+00:00", "price": "1.50", "id": str(number), "photo": "/w==",
    }  # fmt: skip
