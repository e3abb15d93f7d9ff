"""Columns of keys and values as callers have them: lists, or Arrow's arrays, as lists of bytes.

Pure, and without a dependency: an array of binary or text is known by its `buffers()`, which are
Arrow's columnar format (validity bits, offsets, data), whoever made it.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, cast

from ...wire.record_rows import Headers, Rows

Column = Sequence[bytes | None]
Times = int | Sequence[int]
IS_LARGE = {"binary": False, "string": False, "large_binary": True, "large_string": True}


def as_column(column: Any) -> Column:
    """A list of bytes and None from a sequence of them, or from an Arrow array of binary or text.

    Raises TypeError for other arrays.
    """
    if isinstance(column, list | tuple):
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
    partitions_of: Callable[[Column], list[int]] | None,
) -> list[tuple[int | None, Rows]]:
    """The records of each partition in their order; None: those that may go anywhere.

    partitions: one for all, one for each record, or None; None and ANYWHERE: by the key, where
    `partitions_of` is given and there is one. Raises TypeError and ValueError as `Rows` does.
    """
    values = as_column(values)
    keys = None if keys is None else as_column(keys)
    for column in (keys, headers, timestamps, partitions):
        size = len(cast(Sequence[Any], column)) if isinstance(column, Sequence) else len(values)
        if size != len(values):
            raise ValueError(f"columns of {len(values)} and {size} records")
    if keys is not None and partitions_of is not None and not isinstance(partitions, int):
        if partitions is None:
            partitions = partitions_of(keys)
        elif min(partitions, default=0) < 0:
            chosen = zip(partitions, partitions_of(keys), strict=True)
            partitions = [mine if mine >= 0 else its for mine, its in chosen]
    if partitions is None or isinstance(partitions, int):
        return [(partitions, Rows(values, keys, headers, timestamps))]

    places_of: dict[int, list[int]] = {}
    for place, partition in enumerate(partitions):
        places_of.setdefault(partition, []).append(place)

    def those(column: Any, places: list[int]) -> Any:
        if column is None or isinstance(column, int):
            return column
        taken: list[Any] = list(map(column.__getitem__, places))
        return taken

    return [
        (
            partition if partition >= 0 else None,
            Rows(*(those(column, places) for column in (values, keys, headers, timestamps))),
        )
        for partition, places in sorted(places_of.items())
    ]


def from_buffers(
    offsets: Any,
    data: Any,
    validity: Any = None,
    *,
    start: int = 0,
    count: int,
    is_large: bool = False,
) -> list[bytes | None]:
    """The fields of Arrow's buffers: those from `start` on, so many.

    is_large: offsets have 64 bits, not 32. validity: a bit for each, or None.
    """
    if not count:
        return []
    ends = memoryview(offsets).cast("B").cast("q" if is_large else "i")
    ends = ends[start : start + count + 1].tolist()
    first = ends[0]
    # One copy of the bytes that are meant, since slices of `bytes` are the fastest.
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
