"""Records as lines of JSON and back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.consumer import ConsumerRecord
from oncelog.deploy.records.json_lines import Decoded, NotARecord, fields_of, record_of

data = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)
headers = st.lists(st.tuples(st.text(max_size=5), data), max_size=3).map(tuple)


@given(data, data, headers, st.integers(0, 2**40))
def test_record_comes_back_byte_for_byte(key, value, headers, timestamp):
    record = ConsumerRecord("t", 3, 17, timestamp, key, value, headers)
    back = record_of(json.dumps(fields_of(record)).encode())
    assert back == (key, value, headers, 3, timestamp)


def test_bytes_that_are_no_text_are_named():
    fields = fields_of(ConsumerRecord("t", 0, 1, 2, b"k", b"\xff", (("h", b"\xfe"), ("h", b"x"))))
    assert (fields["value"], fields["value_encoding"]) == ("/w==", "base64")
    assert "key_encoding" not in fields
    assert fields["headers"] == [
        {"name": "h", "value": "/g==", "value_encoding": "base64"},
        {"name": "h", "value": "x"},
    ]


def test_decoded_json_is_written_back_as_json():
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
def test_line_of_a_person_is_a_record(line, key, value):
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
    ],
)
def test_line_that_is_no_record_is_refused_in_words(line, words):
    with pytest.raises(NotARecord, match=words):
        record_of(line.encode())
