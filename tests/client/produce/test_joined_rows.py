"""Test that Arrow arrays give the same bytes and partitions as lists of equal values."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.client.produce import columns, joined_rows
from oncelog.client.produce.columns import rows_by_partition
from oncelog.client.produce.joined_rows import ROWS_LEAST, TABLE_MAX, JoinedRows, can_join
from oncelog.client.produce.partitioner import KeyPartitions, StickyPartitioner, partition_for_key
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.errors import InvalidTimestamp
from oncelog.wire.record_rows import ROWS_MAX, Rows, SizedRows

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")
pytest.importorskip("pyarrow.compute")

ENOUGH = 64
BATCH_BYTES = 1 << 30
MODULES = (columns, joined_rows)


@pytest.fixture(scope="module", autouse=True)
def _few_are_enough() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            patch.setattr(module, "ROWS_LEAST", 1)
        yield


def sticking() -> Any:
    return partial(StickyPartitioner(bytes_max=500).choose_many, partitions=4)


some_bytes = (
    st.none()
    | st.binary(max_size=300)
    | st.sampled_from([b"x" * 63, b"y" * 64, b"z" * 8191, b"a" * 8192, b"b" * TABLE_MAX])
)
some_headers = st.lists(
    st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=2
).map(tuple)
some_rows = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=9), some_bytes, some_headers,
        st.integers(0, 2**45), st.integers(-1, 2),
    ),
    min_size=1, max_size=30,
)  # fmt: skip


def column(fields: Any, offset: int, kind: str) -> Any:
    """Return an Arrow slice of these fields that begins at `offset` in its array."""
    array = pa.array([*[b"left out"] * offset, *fields], pa.binary())
    return (array.view(pa.string()) if kind == "string" else array)[offset:]


def batches(
    groups: Any, batch_bytes: int, kind: type[SizedRows]
) -> list[tuple[int | None, bytearray]]:
    """Encode the rows of each partition, and return all batches with their partitions.

    A record that is not among the rows begins the first batch of each partition.
    """
    found: list[tuple[int | None, bytearray]] = []
    for partition, rows in groups:
        assert isinstance(rows, kind)
        at, builder = 0, BatchBuilder()
        builder.append(2**40, b"k", b"v")
        while at < len(rows):
            taken = builder.extend(rows, at, batch_bytes)
            at += taken
            if not taken or at == len(rows):
                found.append((partition, builder.build()))
                builder = BatchBuilder()
    return found


@pytest.mark.in_turn
@settings(deadline=None)  # the first one builds tables
@given(
    some_rows,
    st.integers(0, 3),
    st.sampled_from(["binary", "string"]),
    st.sampled_from([0, 1_000, 1 << 20]),
    st.tuples(*[st.booleans()] * 4),
    st.integers(0, 9),
)
def test_arrow_rows_are_encoded_like_rows_of_lists(rows, offset, kind, batch_bytes, has, partition):
    rows = rows * (ENOUGH // len(rows) + 1)
    keys, values, headers, times, partitions = map(list, zip(*rows, strict=True))
    keys = keys if has[0] else None
    rest = (
        headers if has[1] else None,
        times if has[2] else 2**40,
        partitions if has[3] else None if partition else partition,
        KeyPartitions(4),
        BATCH_BYTES,
    )
    arrays = column(values, offset, kind), None if keys is None else column(keys, offset, kind)
    found = batches(rows_by_partition(*arrays, *rest, sticking()), batch_bytes, JoinedRows)
    of_lists = rows_by_partition(values, keys, *rest, sticking())
    assert found == batches(of_lists, batch_bytes, Rows)


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=13), min_size=1, max_size=40), st.integers(1, 1_000))
def test_arrow_keys_are_partitioned_like_single_keys(keys, partitions):
    for many in (keys, keys * ENOUGH):  # too few of a length, and enough
        found = KeyPartitions(partitions).of_array(column(many, 1, "binary"))
        expected = [-1 if k is None else partition_for_key(k, partitions) for k in many]
        assert found.tolist() == expected


def test_batch_of_arrow_rows_ends_at_its_maximum_of_records():
    values = column([b"v"] * (ROWS_MAX + 100), 0, "binary")
    rows, builder = JoinedRows(values), BatchBuilder()
    assert [builder.extend(rows, at, 1 << 30) for at in (0, ROWS_MAX)] == [ROWS_MAX, 0]
    assert rows.largest_bytes() == Rows(values.to_pylist()).largest_bytes()


def test_column_that_is_not_an_arrow_array_is_read_as_a_list(monkeypatch):
    array = column([b"v"] * ENOUGH, 0, "binary")
    assert can_join(array, None, BATCH_BYTES) and can_join(array, array, BATCH_BYTES)
    assert not can_join(array, array.to_pylist(), BATCH_BYTES)
    assert not can_join(array.cast(pa.large_binary()), None, BATCH_BYTES)
    monkeypatch.setattr(joined_rows, "vector_library", lambda: None)
    assert not can_join(array, None, BATCH_BYTES)


def test_send_many_with_few_rows_reads_arrow_columns_as_lists(monkeypatch):
    """An Arrow kernel costs as much as some hundred rows.

    It costs too much for a short column, for small batches, and for a few rows in each partition.
    """
    for module in MODULES:
        monkeypatch.setattr(module, "ROWS_LEAST", ROWS_LEAST)
    array = column([b"v" * 100] * 2 * ROWS_LEAST, 0, "binary")
    size_bytes = array.nbytes // 2
    assert can_join(array, None, size_bytes)
    assert not can_join(array, None, size_bytes - 1)
    assert not can_join(array[: ROWS_LEAST - 1], None, BATCH_BYTES)
    where = [0] * (ROWS_LEAST + 1) + [1] * (ROWS_LEAST - 1)
    times = list(range(len(where)))
    groups = rows_by_partition(array, None, None, times, where, None, BATCH_BYTES, sticking())
    (_, many), (_, few) = groups
    assert isinstance(many, JoinedRows) and isinstance(few, Rows)
    same = Rows([b"v" * 100] * 5, None, None, times[ROWS_LEAST + 1 :][:5])
    assert few.encode(0, 5, 0, 0) == same.encode(0, 5, 0, 0)


def test_arrow_columns_of_different_lengths_are_refused():
    values, keys = (column([b""] * n, 0, "binary") for n in (ENOUGH, ENOUGH + 1))
    with pytest.raises(ValueError, match=f"columns of {ENOUGH} and {ENOUGH + 1} records"):
        rows_by_partition(values, keys, None, 0, None, None, BATCH_BYTES, sticking())
    with pytest.raises(ValueError, match=f"columns of {ENOUGH} and 1 records"):
        JoinedRows(values, None, None, [1])


@pytest.mark.parametrize("partitions", [None, [0, 1] * ENOUGH])
def test_timestamp_column_without_whole_milliseconds_is_refused(partitions):
    values = column([b"v"] * 2 * ENOUGH, 0, "binary")
    dates = np.array(["2024-01-01"] * len(values), dtype="datetime64[ns]")
    several: list[Any] = [dates, [1.5] * len(values), ["5"] * len(values)]
    for wrong in several:
        with pytest.raises(TypeError, match="whole numbers of milliseconds"):
            rows_by_partition(values, None, None, wrong, partitions, None, BATCH_BYTES, sticking())


@pytest.mark.parametrize("partitions", [None, [0, 1] * ENOUGH])
@pytest.mark.parametrize("kind", [np.uint64, object, list])
def test_timestamp_column_with_more_than_64_bits_is_refused(partitions, kind):
    """Numpy would turn these numbers into negative ones."""
    values = column([b"v"] * 2 * ENOUGH, 0, "binary")
    times = [2**63] * len(values) if kind is list else np.array([2**63] * len(values), kind)
    with pytest.raises(InvalidTimestamp, match="9223372036854775808 has more than 64 bits"):
        rows_by_partition(values, None, None, times, partitions, None, BATCH_BYTES, sticking())


@pytest.mark.parametrize("partitions", [None, [0, 1] * ENOUGH])
def test_timestamp_column_with_a_negative_number_is_refused(partitions):
    """The difference of two timestamps could have more than 64 bits."""
    values = column([b"v"] * 2 * ENOUGH, 0, "binary")
    times = np.arange(len(values)) - 1
    with pytest.raises(InvalidTimestamp, match="-1 is negative"):
        rows_by_partition(values, None, None, times, partitions, None, BATCH_BYTES, sticking())


@pytest.mark.parametrize("partition", [0.5, 0.0, "0", None])
def test_partition_column_with_another_object_than_a_whole_number_is_refused(partition):
    values = column([b"v"] * 2 * ENOUGH, 0, "binary")
    partitions = [-1, partition] * ENOUGH
    with pytest.raises(TypeError):
        rows_by_partition(values, None, None, 5, partitions, None, BATCH_BYTES, sticking())
