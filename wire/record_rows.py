"""Many records as columns, for a producer with columnar data.

`BatchBuilder.append` costs a function call and a dozen interpreter steps for each record. Here a
record costs a few steps inside the interpreter's C code (`map`, `zip`, `join`). The bytes before a
value depend only on the value's length and its index in the batch, so they are looked up in tables.
The encoded bytes equal the bytes of `BatchBuilder.append`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, repeat
from operator import add, index, sub
from typing import Any

from .errors import InvalidTimestamp
from .primitives import encode_varint

Headers = Sequence[tuple[str, bytes | None]]
Column = Sequence[bytes | None]
ROWS_MAX = 8192  # for one batch, so that record indexes have a table, and take at most two bytes
CACHED_MAX = 1 << 14  # for each table below, since lengths are a client's choice
NO_HEADERS = b"\0"
LONG_MAX = 2**63 - 1
BYTES = frozenset({bytes, type(None)})
BYTES_LIKE = bytes, bytearray, memoryview


class _Table(dict[int, Any]):
    """A dictionary that computes missing values from their number, and keeps at most CACHED_MAX.

    By default a value is the number as a varint.
    """

    def __missing__(self, number: int) -> Any:
        answer = self.answer(number)
        if len(self) < CACHED_MAX:
            self[number] = answer
        return answer

    def answer(self, number: int) -> Any:
        """Compute the value for a number that is not in the table."""
        return encode_varint(number)


class _Cost(_Table):
    """The size in bytes of a key or value with its length prefix, by its length (-1 for null)."""

    def answer(self, number: int) -> int:
        return max(number, 0) + len(encode_varint(number))


class _AfterNullKey(_Table):
    """The encoded bytes of a null key and of the length of the value after it, by that length."""

    def answer(self, number: int) -> bytes:
        return b"\x01" + encode_varint(number)


class _Head(_Table):
    """The encoded bytes between the fields of two adjacent records, which are looked up together.

    They end a record and begin the next one. The number is the size of the next record after its
    timestamp delta.
    """

    def __init__(self, delta: bytes, closes: bytes) -> None:
        super().__init__()
        self._delta, self._closes = delta, closes

    def answer(self, number: int) -> bytes:
        return self._closes + encode_varint(1 + len(self._delta) + number) + b"\0" + self._delta


_SIZED, _COST, _AFTER_NULL_KEY, _DELTAS = _Table(), _Cost(), _AfterNullKey(), _Table()
_PLACES = tuple(encode_varint(place) for place in range(ROWS_MAX))
_HEADS_MAX = 64
_heads: dict[tuple[bytes, bytes], _Head] = {}


def _heads_for(delta: bytes, closes: bytes) -> _Head:
    found = _heads.get((delta, closes))
    if found is None:
        if len(_heads) >= _HEADS_MAX:
            _heads.clear()
        found = _heads[(delta, closes)] = _Head(delta, closes)
    return found


class SizedRows:
    """The sizes of rows, which tell how many rows fit into a batch.

    `_edges` are upper bounds of the positions at which rows end. `timestamps` are wall-clock ms,
    either one for all rows or one for each.
    """

    __slots__ = ("_edges", "timestamps")
    _edges: Sequence[int]
    timestamps: Any

    def __len__(self) -> int:
        return len(self._edges) - 1

    def before_place_bytes(self) -> int:
        """Return the usual maximum size of a record's fields between its length and its key."""
        times = self.timestamps
        if isinstance(times, int) or not len(times):
            return 1 + 2 + 2
        return 1 + 2 + len(encode_varint(int(max(times)) - int(min(times))))

    def bytes_between(self, first: int, last: int) -> int:
        """Return the approximate size of the rows from `first` to before `last`."""
        return self._edges[last] - self._edges[first]

    def largest_bytes(self) -> int:
        """Return the size of key, value and headers of the largest row, or 0 without rows."""
        raise NotImplementedError

    def fitting(self, at: int, room_bytes: int, place: int) -> int:
        """Return how many rows from `at` on fit into `room_bytes` of a batch with `place` records.

        An empty batch accepts at least one row.
        """
        edges = self._edges
        last = bisect_right(edges, edges[at] + room_bytes) - 1
        if place == 0:
            last = max(last, at + 1)  # a record larger than a batch gets its own batch
        return max(0, min(last - at, ROWS_MAX - place))

    def encode(self, at: int, count: int, place: int, base_timestamp: int) -> tuple[Any, int]:
        """Encode `count` rows from `at` on, for a batch that has `place` records.

        Returns (bytes, newest timestamp).
        """
        raise NotImplementedError


class Rows(SizedRows):
    """Records of one partition as columns, each as long as `values`.

    Without `keys` all keys are null, and without `headers` no record has headers. Raises TypeError
    for values that are not bytes, ValueError for columns of different lengths.
    """

    __slots__ = ("_headers", "_keys", "_sizes", "_values")

    def __init__(
        self,
        values: Column,
        keys: Column | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps: int | Sequence[int] = 0,
    ) -> None:
        for column in (keys, headers, timestamps):
            if isinstance(column, Sequence) and len(column) != len(values):
                raise ValueError(f"columns of {len(values)} and {len(column)} records")
        self.timestamps = timestamps
        self._values, lengths = measure(values)
        sizes: Iterable[int] = map(_COST.__getitem__, lengths)
        self._keys: tuple[Sequence[bytes], list[int]] | None = None
        if keys is not None:
            self._keys = measure(keys)
            sizes = map(add, sizes, map(_COST.__getitem__, self._keys[1]))
        self._headers: list[bytes] | None = None
        if headers is not None:
            self._headers = list(map(encode_headers, headers))
            sizes = map(add, sizes, map(len, self._headers))
        # After the timestamp delta, without the index: a null key and no headers take a byte each.
        extra = (keys is None) + (headers is None)
        self._sizes = (lengths, list(map(add, sizes, repeat(extra))))
        bound = map(add, self._sizes[1], repeat(self.before_place_bytes()))
        self._edges = list(accumulate(map(_COST.__getitem__, bound), initial=0))

    def largest_bytes(self) -> int:
        """Return the size of key, value and headers of the largest row, or 0 without rows."""
        return max(self._sizes[1], default=0)

    def encode(self, at: int, count: int, place: int, base_timestamp: int) -> tuple[bytes, int]:
        """Encode `count` rows from `at` on, for a batch that has `place` records.

        Returns (bytes, newest timestamp).
        """
        last = at + count
        lengths, sizes = self._sizes[0][at:last], self._sizes[1][at:last]
        places = _PLACES[place : place + count]
        times, headers = self.timestamps, self._headers
        # Written by the head of the next record.
        closes = b"" if headers is not None else NO_HEADERS
        inner: Iterable[int] = map(add, sizes, map(len, places))
        columns: list[Iterable[Any]] = []
        if isinstance(times, int):
            newest = times
            columns.append(
                map(_heads_for(encode_varint(times - base_timestamp), closes).__getitem__, inner)
            )
        else:
            times = times[at:last]
            newest = max(times)
            deltas = list(map(_DELTAS.__getitem__, map(sub, times, repeat(base_timestamp))))
            inner = map(add, inner, map(len, deltas))
            columns += (map(_heads_for(b"", closes).__getitem__, inner), deltas)
        columns.append(places)
        if self._keys is None:
            columns.append(map(_AFTER_NULL_KEY.__getitem__, lengths))
        else:
            key_lengths = self._keys[1][at:last]
            columns += (map(_SIZED.__getitem__, key_lengths), self._keys[0][at:last])
            columns.append(map(_SIZED.__getitem__, lengths))
        columns.append(self._values[at:last])
        if headers is not None:
            columns.append(headers[at:last])
        chunks = list(chain.from_iterable(zip(*columns, strict=True)))
        if headers is None:
            chunks[0] = chunks[0][1:]
            chunks.append(NO_HEADERS)
        return b"".join(chunks), newest


def encode_headers(headers: Headers) -> bytes:
    """Encode the number of headers, and each name and value with its length prefix.

    Raises TypeError for a name that is no text, and for a value that is not bytes or None.
    """
    if not headers:
        return NO_HEADERS
    pieces = [encode_varint(len(headers))]
    for name, value in headers:
        try:
            encoded = name.encode()
        except AttributeError:
            raise TypeError(f"header names are text, not {type(name).__name__}") from None
        if value is None:
            pieces += (_SIZED[len(encoded)], encoded, b"\x01")
        else:
            content = value if type(value) is bytes else as_bytes(value)
            pieces += (_SIZED[len(encoded)], encoded, _SIZED[len(content)], content)
    return b"".join(pieces)


def checked_time(timestamp: Any) -> int:
    """Return a timestamp as an int.

    Raises TypeError for another number, and InvalidTimestamp for a negative one, as Java's producer
    does, or one of more than 64 bits. So the difference of two timestamps has 64 bits, too.
    """
    found = index(timestamp)
    if not 0 <= found <= LONG_MAX:
        wrong = "is negative" if found < 0 else "has more than 64 bits"
        raise InvalidTimestamp(f"the timestamp {found} {wrong}")
    return found


def checked_times(timestamps: Iterable[Any]) -> list[int]:
    """Return timestamps as ints, or raise the errors of `checked_time`."""
    times = list(map(index, timestamps))
    if times:
        checked_time(max(times))
        checked_time(min(times))
    return times


def as_bytes(field: Any) -> bytes:
    """Return a key or value as bytes. Raises TypeError for an object that is not bytes-like."""
    if not isinstance(field, BYTES_LIKE):
        raise TypeError(f"keys and values are bytes or None, not {type(field).__name__}")
    return bytes(field)  # pyright: ignore[reportUnknownArgumentType]


def as_fields(column: Column) -> tuple[Column, bool]:
    """Return a column of keys or values as bytes and None, and whether it has a None.

    Raises TypeError for other objects.

    A memoryview's length is perhaps not counted in bytes, and a bytearray can grow.
    """
    kinds: set[type[Any]] = set(map(type, column))
    if others := {kind for kind in kinds - BYTES if not issubclass(kind, BYTES_LIKE)}:
        wrong = ", ".join(sorted(kind.__name__ for kind in others))
        raise TypeError(f"keys and values are bytes or None, not {wrong}")
    if not kinds <= BYTES:
        column = [None if field is None else bytes(field) for field in column]
    return column, type(None) in kinds


def measure(column: Column) -> tuple[Sequence[bytes], list[int]]:
    """Return the column with empty bytes for nulls, and its lengths with -1 for nulls."""
    column, has_null = as_fields(column)
    if has_null:
        lengths = [-1 if field is None else len(field) for field in column]
        return [b"" if field is None else field for field in column], lengths
    return column, list(map(len, column))  # type: ignore[return-value,arg-type]
