"""Converts columns of keys and values, which are sequences or Arrow arrays, to lists of bytes.

The file does no I/O, and needs no other package. An array of binary or text is read through its
`buffers()`, which have Arrow's columnar format (validity bits, offsets, data) in any
implementation. Arrays of pyarrow for which `can_join` is true are kept (joined_rows.py).
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import index
from typing import Any

from ...wire.batch_builder import RECORD_BYTES_EXTRA, size_of_headers
from ...wire.record_rows import (
    Headers,
    Rows,
    SizedRows,
    as_fields,
    checked_time,
    checked_times,
    measure,
)
from .joined_rows import ROWS_LEAST, JoinedRows, as_wall_ms, can_join
from .key_hashing import vector_library
from .partitioner import ANYWHERE, KeyPartitions

Column = Sequence[bytes | None]
Times = int | Sequence[int]
# Splits records into runs by their sizes: (count, partition), as `StickyPartitioner` does.
Stick = Callable[[Iterable[int]], Iterable[tuple[int, int]]]
IS_LARGE = {"binary": False, "string": False, "large_binary": True, "large_string": True}


def as_column(column: Any) -> Column:
    """Return a sequence of bytes and None, also from an Arrow array of binary or text.

    The sequence is never the caller's list, which may change between two batches. Raises TypeError
    for other arrays.
    """
    if isinstance(column, tuple):
        return column  # type: ignore[return-value]
    if hasattr(column, "chunks"):
        return [field for chunk in column.chunks for field in as_column(chunk)]
    if hasattr(column, "buffers"):
        is_large = IS_LARGE.get(str(column.type))
        if is_large is None:
            raise TypeError(f"a column of keys or values is binary or text, not {column.type}")
        nulls = column.null_count > 0
        validity, offsets, data = column.buffers()
        validity = validity if nulls else None
        return from_buffers(
            offsets, data, validity, start=column.offset, count=len(column), is_large=is_large
        )
    if hasattr(column, "tolist"):
        return column.tolist()  # type: ignore[no-any-return]
    return list(column)


def rows_by_partition(
    values: Any,
    keys: Any,
    headers: Sequence[Headers] | None,
    timestamps: Times,
    partitions: int | Sequence[int] | None,
    by_key: KeyPartitions | None,
    batch_bytes: int,
    stick: Stick,
) -> Sequence[tuple[int | None, SizedRows]]:
    """Group records by partition. The group None has the records without a chosen partition.

    partitions: one for all records, one for each record, or None. If `by_key` is given, a record
    with a key gets the key's partition where `partitions` is None or ANYWHERE. batch_bytes: the
    size of batches. stick: chooses partitions for the group None if other records have partitions.
    The order of the call is kept within each partition. Raises TypeError and ValueError as `Rows`
    does, and InvalidTimestamp for a timestamp that is negative or has more than 64 bits.
    """
    joins = can_join(values, keys, batch_bytes)
    if not joins:
        values = as_column(values)
        keys = None if keys is None else as_column(keys)
    for column in (keys, headers, timestamps, partitions):
        size = len(values) if column is None or isinstance(column, int) else len(column)
        if size != len(values):
            raise ValueError(f"columns of {len(values)} and {size} records")
    if isinstance(timestamps, int):
        checked_time(timestamps)
    else:
        timestamps = as_wall_ms(timestamps) if joins else checked_times(timestamps)
    if not joins:
        keys = None if keys is None else as_fields(keys)[0]
        if partitions is not None and not isinstance(partitions, int):
            partitions = list(map(index, partitions))
    if keys is not None and by_key is not None and not isinstance(partitions, int):
        if partitions is None:
            partitions = by_key.of_array(keys) if joins else by_key.of_many(keys)
        elif min(partitions, default=0) < 0:
            chosen = zip(partitions, by_key.of_many(as_column(keys)), strict=True)
            partitions = [its if mine == ANYWHERE else mine for mine, its in chosen]
    if partitions is None or isinstance(partitions, int):
        rows = JoinedRows if joins else Rows
        return [(partitions, rows(values, keys, headers, timestamps))]
    if joins:
        return _arrays_by_partition(values, keys, headers, timestamps, partitions, stick)

    places_of: dict[int, list[int]] = {}
    for place, partition in enumerate(partitions):
        places_of.setdefault(partition, []).append(place)
    if len(places_of) > 1 and (loose := places_of.pop(ANYWHERE, None)):
        sizes, at = _sizes(*(_those(column, loose) for column in (values, keys, headers))), 0
        for count, partition in stick(sizes):
            places_of.setdefault(partition, []).extend(loose[at : at + count])
            at += count
        for places in places_of.values():
            places.sort()
    return [
        (
            None if partition == ANYWHERE else partition,
            Rows(*(_those(column, places) for column in (values, keys, headers, timestamps))),
        )
        for partition, places in sorted(places_of.items())
    ]


def _those(column: Any, places: list[int]) -> Any:
    if column is None or isinstance(column, int):
        return column
    taken: list[Any] = list(map(column.__getitem__, places))
    return taken


def _sizes(values: Column, keys: Column | None, headers: Sequence[Headers] | None) -> list[int]:
    """Return the size of each record in bytes, counted as in `send`."""
    sizes = [
        [max(length, 0) for length in measure(column)[1]]
        for column in (values, keys)
        if column is not None
    ]
    if headers is not None:
        sizes.append(list(map(size_of_headers, headers)))
    return [RECORD_BYTES_EXTRA + sum(row) for row in zip(*sizes, strict=True)]


def _arrays_by_partition(
    values: Any, keys: Any, headers: Any, timestamps: Any, partitions: Any, stick: Stick
) -> list[tuple[int | None, SizedRows]]:
    """Group arrays by partition with one sort, as `rows_by_partition` does."""
    numpy = vector_library()
    partitions = numpy.asarray(partitions)
    if partitions.dtype.kind not in "iub":
        partitions = numpy.array(list(map(index, partitions.tolist())))
    loose = numpy.flatnonzero(partitions == ANYWHERE)
    if 0 < len(loose) < len(partitions):
        partitions = partitions.astype(numpy.int64)  # a copy: the array may be the caller's
        sizes = numpy.full(len(values), RECORD_BYTES_EXTRA, numpy.int64)
        for column in (values, keys):
            if column is not None:
                sizes += sys.modules["pyarrow"].compute.binary_length(column).fill_null(0)
        if headers is not None:
            sizes += numpy.fromiter(map(size_of_headers, headers), numpy.int64, len(values))
        counts, chosen = zip(*stick(sizes[loose].tolist()), strict=True)
        partitions[loose] = numpy.repeat(chosen, counts)
    order = numpy.argsort(partitions, kind="stable")
    distinct, firsts = numpy.unique(partitions[order], return_index=True)
    values, keys = values.take(order), None if keys is None else keys.take(order)
    headers = None if headers is None else _those(headers, order.tolist())
    if not isinstance(timestamps, int):
        timestamps = as_wall_ms(timestamps)[order]
    found: list[tuple[int | None, SizedRows]] = []
    for partition, first, last in zip(
        distinct.tolist(), firsts.tolist(), [*firsts[1:].tolist(), len(order)], strict=True
    ):
        columns: list[Any] = [
            column if column is None or isinstance(column, int) else column[first:last]
            for column in (values, keys, headers, timestamps)
        ]
        if last - first >= ROWS_LEAST:
            rows: SizedRows = JoinedRows(*columns)
        else:
            lists: list[Any] = [
                each if each is None or isinstance(each, int) else as_column(each)
                for each in columns
            ]
            rows = Rows(*lists)
        found.append((None if partition == ANYWHERE else partition, rows))
    return found


def from_buffers(
    offsets: Any,
    data: Any,
    validity: Any = None,
    *,
    start: int = 0,
    count: int,
    is_large: bool = False,
) -> list[bytes | None]:
    """Return `count` fields from Arrow's buffers, beginning with field `start`.

    is_large: offsets have 64 bits, not 32. validity: a bit for each field, or None.
    """
    if not count:
        return []
    ends = memoryview(offsets).cast("B").cast("q" if is_large else "i")
    ends = ends[start : start + count + 1].tolist()
    first = ends[0]
    # One copy of the needed bytes, since slices of `bytes` are the fastest.
    whole = b"" if data is None else bytes(memoryview(data).cast("B")[first : ends[-1]])
    if first:
        ends = [end - first for end in ends]
    fields: list[bytes | None] = list(
        map(whole.__getitem__, map(slice, ends, islice(ends, 1, None)))
    )
    if validity is not None:
        bits = memoryview(validity).cast("B")
        for at in range(count):
            place = start + at
            if not bits[place >> 3] >> (place & 7) & 1:
                fields[at] = None
    return fields
