"""Test the encoding of Kafka's primitive types, and the refusal of false lengths."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import writers
from kio.static.primitive import uvarint

from oncelog.wire.primitives import (
    ELEMENTS_MAX,
    TAGS_MAX,
    MalformedFrame,
    Reader,
    encode_count,
    encode_string,
    encode_tags,
    encode_unsigned_varint,
    skip_tags_at,
    unsigned_varint_at,
)

flexible_or_not = pytest.mark.parametrize("flexible", [False, True])
edges = st.sampled_from([0, 1, 127, 128, 16383, 16384, 2**21 - 1, 2**21, 2**28, 2**32 - 1])


@given(st.integers(0, 2**32 - 1) | edges)
def test_varint_equals_that_of_kio_and_is_decoded_back(value: int) -> None:
    stream = io.BytesIO()
    if value < 2**31:
        writers.write_unsigned_varint(stream, uvarint(value))
        assert encode_unsigned_varint(value) == stream.getvalue()
    data = encode_unsigned_varint(value)
    assert Reader(memoryview(data)).unsigned_varint() == value
    assert unsigned_varint_at(data, 0) == (value, len(data))


@pytest.mark.parametrize(
    "data", [b"\xff" * 5, b"\xff" * 10, b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x00"]
)
def test_varint_of_more_than_32_bits_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedFrame):
        Reader(memoryview(data)).unsigned_varint()
    with pytest.raises(MalformedFrame):
        unsigned_varint_at(data, 0)


def test_varint_that_is_cut_short_is_refused() -> None:
    with pytest.raises(MalformedFrame):
        Reader(memoryview(b"\x80\x80")).unsigned_varint()
    with pytest.raises(IndexError):
        unsigned_varint_at(b"\x80\x80", 0)


@flexible_or_not
@given(value=st.none() | st.text(max_size=200))
def test_string_is_decoded_back(value: str | None, flexible: bool) -> None:
    reader = Reader(memoryview(encode_string(value, flexible)))
    assert reader.nullable_string(flexible) == value
    reader.finish()


@pytest.mark.parametrize(
    ("data", "flexible"),
    [
        (b"\x7f\xff", False),  # 32767 bytes announced, none there
        (b"\xff\xfe", False),  # length -2
        (b"\x00\x02\xc3\x28", False),  # not UTF-8
        (b"\xff\xff\xff\xff\x0f", True),  # 4 GiB announced
        (b"\x03\xc3\x28", True),
        (b"\x00", False),
        (b"", True),
    ],
)
def test_string_that_is_malformed_is_refused(data: bytes, flexible: bool) -> None:
    with pytest.raises(MalformedFrame):
        Reader(memoryview(data)).nullable_string(flexible)


@flexible_or_not
def test_null_in_a_non_nullable_field_is_refused(flexible: bool) -> None:
    with pytest.raises(MalformedFrame):
        Reader(memoryview(encode_string(None, flexible))).string(flexible)
    with pytest.raises(MalformedFrame):
        Reader(memoryview(encode_count(-1, flexible))).array(flexible, 1, list)


@flexible_or_not
@pytest.mark.parametrize("count", [3, 2**20, 2**31 - 2])
def test_array_count_beyond_the_remaining_bytes_is_refused(count: int, flexible: bool) -> None:
    reader = Reader(memoryview(encode_count(count, flexible) + bytes(11)))
    with pytest.raises(MalformedFrame):
        reader.count(flexible, 4)


def test_array_with_a_negative_count_other_than_null_is_refused() -> None:
    with pytest.raises(MalformedFrame):
        Reader(memoryview(b"\xff\xff\xff\xfe")).count(False, 1)


def test_arrays_of_one_message_share_one_element_limit() -> None:
    half = ELEMENTS_MAX // 2 + 1
    body = bytes(half)
    reader = Reader(memoryview(encode_count(half, True) + body + encode_count(half, True) + body))
    reader.count(True, 1)
    reader.take(half)
    with pytest.raises(MalformedFrame):
        reader.count(True, 1)


def test_tagged_fields_are_decoded_and_unknown_tags_skipped() -> None:
    data = encode_tags([(0, b"a"), (7, b""), (300, b"ccc")])
    reader = Reader(memoryview(data + b"rest"))
    assert {tag: bytes(value) for tag, value in reader.tags().items()} == {
        0: b"a",
        7: b"",
        300: b"ccc",
    }
    assert reader.position == skip_tags_at(memoryview(data + b"rest"), 0) == len(data)


@pytest.mark.parametrize(
    "tags",
    [
        encode_unsigned_varint(TAGS_MAX + 1) + b"".join(bytes((i, 0)) for i in range(TAGS_MAX + 1)),
        b"\xff\xff\xff\xff\x0f",  # the count
        b"\x02\x07\x00\x07\x00",  # twice the same
        b"\x02\x07\x00\x05\x00",  # not ascending
        b"\x01\x07\xff\xff\xff\xff\x07",  # 2 GiB announced
        b"\x01",
        b"",
    ],
)
def test_tagged_fields_that_are_malformed_repeated_or_too_many_are_refused(tags: bytes) -> None:
    with pytest.raises(MalformedFrame):
        Reader(memoryview(tags)).tags()
    with pytest.raises(MalformedFrame):
        skip_tags_at(memoryview(tags), 0)


def test_trailing_bytes_after_a_message_are_refused() -> None:
    reader = Reader(memoryview(b"\0\0\0\1x"))
    assert reader.int32() == 1
    with pytest.raises(MalformedFrame):
        reader.finish()


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "uuid"])
def test_fixed_size_field_that_is_cut_short_is_refused(name: str) -> None:
    with pytest.raises(MalformedFrame):
        getattr(Reader(memoryview(b"")), name)()
