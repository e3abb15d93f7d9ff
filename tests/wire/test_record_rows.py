"""Test that records added as columns are encoded to the same bytes as single records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.record_rows import CACHED_MAX, ROWS_MAX, Rows, _Table
from oncelog.wire.records import decode_batch

some_bytes = (
    st.none()
    | st.binary(max_size=300)
    | st.sampled_from([b"x" * 63, b"y" * 64, b"z" * 8191, b"a" * 8192, bytearray(b"b")])
)
some_headers = st.lists(
    st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=3
).map(tuple)
some_times = st.integers(0, 2**45)
some_rows = st.lists(
    st.tuples(some_times, some_bytes, some_bytes, some_headers), min_size=1, max_size=90
)


def built(builder: BatchBuilder) -> bytes:
    return bytes(builder.build(producer_id=1, producer_epoch=2, base_sequence=3))


@given(some_rows, some_rows, st.booleans(), st.booleans(), st.booleans())
def test_batch_built_from_columns_equals_one_built_record_by_record(
    before, rows, has_keys, has_headers, has_times
):
    one_by_one, at_once = BatchBuilder(), BatchBuilder()
    for builder in (one_by_one, at_once):
        for row in before:
            builder.append(*row)
    when = rows[0][0]
    for timestamp, key, value, headers in rows:
        one_by_one.append(
            timestamp if has_times else when,
            key if has_keys else None,
            value,
            headers if has_headers else (),
        )
    times, keys, values, headers = (list(column) for column in zip(*rows, strict=True))
    columns = Rows(
        values,
        keys if has_keys else None,
        headers if has_headers else None,
        times if has_times else when,
    )
    assert at_once.extend(columns, 0, 1 << 30) == len(rows) == len(columns)
    assert built(at_once) == built(one_by_one)
    assert (at_once.count, at_once.size_bytes) == (one_by_one.count, one_by_one.size_bytes)


@given(some_rows, st.integers(100, 3_000), st.booleans())
def test_batch_rows_are_divided_into_batches_of_at_most_the_given_size(
    rows, batch_bytes, has_times
):
    times, keys, values, headers = (list(column) for column in zip(*rows, strict=True))
    columns = Rows(values, keys, headers, times if has_times else 5)
    at, found = 0, []
    while at < len(columns):
        builder = BatchBuilder()
        taken = builder.extend(columns, at, batch_bytes)
        assert taken > 0
        while more := builder.extend(columns, at + taken, batch_bytes):
            taken += more
        # timestamps far from the first of a batch may take a few bytes more than was counted on
        most = batch_bytes + (4 * builder.count if has_times else 0)
        assert builder.size_bytes <= most or builder.count == 1
        found += [(r.key, r.value, r.headers) for r in decode_batch(built(builder))]
        at += taken
    assert found == list(zip(keys, values, headers, strict=True))


def test_batch_accepts_no_more_rows_than_its_maximum():
    rows = Rows([b"v"] * (ROWS_MAX + 5))
    builder = BatchBuilder()
    builder.append(0, None, b"first")
    assert builder.extend(rows, 0, 1 << 30) == ROWS_MAX - 1
    assert builder.extend(rows, ROWS_MAX - 1, 1 << 30) == 0
    assert len(decode_batch(built(builder))) == ROWS_MAX


def test_batch_rows_with_values_not_bytes_or_columns_of_unequal_length_are_refused():
    with pytest.raises(TypeError, match="bytes or None, not int, str"):
        Rows([b"", "text", 3])  # type: ignore[list-item]
    for columns in ({"keys": [b""]}, {"headers": [()]}, {"timestamps": [1]}):
        with pytest.raises(ValueError, match="columns of 2 and 1 records"):
            Rows([b"", None], **columns)  # type: ignore[arg-type]
    assert Rows([b"12", None, b"1234"], [b"", b"1", None]).largest_bytes() < 12


def test_varint_length_cache_is_bounded():
    table = _Table()
    for number in range(2 * CACHED_MAX):
        assert table[number]
    assert len(table) == CACHED_MAX
