"""Encodes records from Arrow arrays with Arrow's kernels. The bytes equal the bytes of `Rows`.

The interpreter's steps for each record are the largest cost on the way to a broker. Arrow joins
binary columns row by row into one buffer. Therefore one call produces the records of a batch, with
the varints between fields as columns of their own. This module never imports Arrow or numpy. An
application with arrays has loaded Arrow, and without numpy the producer uses `Rows`.
"""

import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

from ...wire.primitives import encode_varint
from ...wire.record_rows import (
    NO_HEADERS,
    ROWS_MAX,
    Headers,
    SizedRows,
    checked_time,
    checked_times,
    encode_headers,
)
from .key_hashing import vector_library

JOINED = {"binary", "string"}  # with 32-bit offsets
ATTRIBUTES = b"\0"
NULL = -1  # as a length
TABLE_MAX = 1 << 14
ROWS_LEAST = 300  # in one call: below, the kernels cost more than the rows
SIZE_STEPS = (1 << 6, 1 << 13, 1 << 20, 1 << 27)  # sizes from which a varint takes another byte


def can_join(values: Any, keys: Any, batch_bytes: int) -> bool:
    """Return whether `JoinedRows` can encode these columns, and is faster than `Rows`.

    The columns must be Arrow arrays (`keys` may be None), and a batch must hold enough rows.
    """
    arrow = sys.modules.get("pyarrow")
    if arrow is None or "pyarrow.compute" not in sys.modules or vector_library() is None:
        return False
    columns = [values] if keys is None else [values, keys]
    for column in columns:
        if not isinstance(column, arrow.Array) or str(column.type) not in JOINED:
            return False
    rows, size_bytes = len(values), sum(column.nbytes for column in columns)
    return rows >= ROWS_LEAST and batch_bytes * rows >= ROWS_LEAST * size_bytes


def as_wall_ms(timestamps: Any) -> Any:
    """Return timestamps as int64, or raise TypeError unless they are whole numbers.

    Dates are refused, since dates have other units. Raises InvalidTimestamp as `checked_times`.
    """
    numpy: Any = vector_library()
    found = numpy.asarray(timestamps)
    if found.dtype.kind in "uO":  # only these can be above int64
        return numpy.array(checked_times(found.tolist()), numpy.int64)
    if found.dtype.kind not in "ib":
        raise TypeError(f"timestamps are whole numbers of milliseconds, not {found.dtype}")
    times = found.astype(numpy.int64)
    if len(times):
        checked_time(times.min())
    return times


class _Varints:
    """Encodes columns of numbers as columns of varints, with a table for small numbers."""

    def __init__(self) -> None:
        self._arrow: Any = sys.modules["pyarrow"]
        self._numpy: Any = vector_library()
        self._table: Any = self._encoded(range(NULL, TABLE_MAX))
        places = self._numpy.arange(ROWS_MAX)
        self.places, self.place_bytes = self.of(places), self.sizes(places)

    def of(self, numbers: Any) -> Any:
        """Return a column with the varint of each number."""
        smallest, largest = int(numbers.min()), int(numbers.max())
        if smallest < NULL or largest >= TABLE_MAX:
            distinct, indices = self._numpy.unique(numbers, return_inverse=True)
            return self._encoded(distinct.tolist()).take(self._arrow.array(indices))
        return self._table.take(self._arrow.array(numbers + 1))

    def sizes(self, numbers: Any) -> Any:
        """Return the length of each number's varint. The numbers are -1 or larger."""
        found = self._numpy.ones(len(numbers), dtype=self._numpy.int64)
        for step in SIZE_STEPS:
            found += numbers >= step
        return found

    def _encoded(self, numbers: Sequence[int]) -> Any:
        return self._arrow.array(list(map(encode_varint, numbers)), self._arrow.binary())


_varints = cache(_Varints)  # one for the process


class JoinedRows(SizedRows):
    """Records of one partition. Keys and values are arrays for which `can_join` is true.

    headers, timestamps: as for `Rows`, but numpy timestamps are accepted. Raises ValueError for
    columns of different lengths.
    """

    __slots__ = ("_arrow", "_headers", "_keys", "_known", "_sizes", "_values")

    def __init__(
        self,
        values: Any,
        keys: Any = None,
        headers: Sequence[Headers] | None = None,
        timestamps: Any = 0,
    ) -> None:
        numpy: Any = vector_library()
        if not isinstance(timestamps, int):
            timestamps = as_wall_ms(timestamps)
        for column in (keys, headers, timestamps):
            if not (column is None or isinstance(column, int)) and len(column) != len(values):
                raise ValueError(f"columns of {len(values)} and {len(column)} records")
        self.timestamps = timestamps
        self._arrow: Any = sys.modules["pyarrow"]
        self._known = _varints()
        self._values = self._measured(values)
        self._keys = None if keys is None else self._measured(keys)
        # The bytes after the timestamp delta, without those of the place.
        sizes = self._costs(self._values[1])
        sizes += 1 if self._keys is None else self._costs(self._keys[1])
        self._headers: Any = None
        if headers is None:
            sizes += 1
        else:
            encoded = list(map(encode_headers, headers))
            self._headers = self._arrow.array(encoded, self._arrow.binary())
            sizes += numpy.fromiter(map(len, encoded), numpy.int64, len(encoded))
        self._sizes = sizes
        bound = self._costs(sizes + self.before_place_bytes())
        self._edges = numpy.concatenate(([0], bound.cumsum())).tolist()

    def _measured(self, column: Any) -> tuple[Any, Any]:
        """Return the column and the lengths of its values.

        A null value becomes empty, and its length becomes NULL (-1).
        """
        lengths = self._arrow.compute.binary_length(column)
        column = column.cast(self._arrow.binary())
        if column.null_count:
            lengths, column = lengths.fill_null(NULL), column.fill_null(b"")
        return column, lengths.to_numpy(zero_copy_only=False).astype("int64")

    def _costs(self, lengths: Any) -> Any:
        """Return the encoded size of a value of each length, including its length prefix."""
        return lengths.clip(0) + self._known.sizes(lengths)

    def largest_bytes(self) -> int:
        """Return the encoded size of key, value and headers of the largest record."""
        return int(self._sizes.max())

    def encode(self, at: int, count: int, place: int, base_timestamp: int) -> tuple[Any, int]:
        """Encode rows as `Rows.encode` does. The bytes are a memoryview."""
        known, scalar, last = self._known, self._arrow.scalar, at + count
        places = slice(place, place + count)
        inner = self._sizes[at:last] + known.place_bytes[places] + len(ATTRIBUTES)
        times = self.timestamps
        if isinstance(times, int):
            newest, delta = times, encode_varint(times - base_timestamp)
            inner += len(delta)
            stamps = [scalar(ATTRIBUTES + delta)]
        else:
            newest = int(times[at:last].max())
            deltas = known.of(times[at:last] - base_timestamp)
            inner += self._measured(deltas)[1]
            stamps = [scalar(ATTRIBUTES), deltas]
        joined = self._arrow.compute.binary_join_element_wise(
            known.of(inner),
            *stamps,
            known.places[places],
            *self._field(self._keys, at, last),
            *self._field(self._values, at, last),
            scalar(NO_HEADERS) if self._headers is None else self._headers[at:last],
            b"",
        )
        _, ends, data = joined.buffers()
        end: int = memoryview(ends).cast("i")[count]
        return memoryview(data)[:end], newest

    def _field(self, column: tuple[Any, Any] | None, at: int, last: int) -> tuple[Any, ...]:
        """Return the length varints and the contents of a column from row `at` to before `last`."""
        if column is None:
            return (self._arrow.scalar(encode_varint(NULL)),)
        contents, lengths = column
        return self._known.of(lengths[at:last]), contents[at:last]
