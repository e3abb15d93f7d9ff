"""Decodes the records of a batch into columns, in one loop, because a call per record would be
slow.

The file does no I/O. The checksum was verified, so the bytes are those that a broker accepted.
Their lengths are still checked against the batch. `wire.records.decode_batch` is the plain form of
the same function. A batch that was never compacted has consecutive offsets, which become a `range`
and are not read.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from ...wire.compression import decompress
from ...wire.errors import InvalidRecord
from ...wire.record_batch import HEADER_BYTES, BatchHeader, Buffer
from ...wire.records import DECOMPRESSED_BYTES_MAX

RECORD_BYTES_MIN = 7  # length, attributes, two deltas, null key, null value, no headers
Headers = tuple[tuple[str, bytes | None], ...]
NO_HEADERS: Headers = ()


class RecordColumns(NamedTuple):
    """The records of one batch, as columns of the same length.

    offsets: ascending. A range when no offset is missing. timestamps: wall-clock ms. headers: None
    when no record has headers. header: the header of the batch, with producer, epoch, sequence,
    leader epoch and attributes.
    """

    topic: str
    partition: int
    header: BatchHeader
    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers] | None

    def between(self, from_offset: int, until_offset: int | None = None) -> "RecordColumns":
        """Return the records from `from_offset` up to before `until_offset`."""
        offsets = self.offsets
        first = bisect_left(offsets, from_offset)
        last = len(offsets) if until_offset is None else bisect_left(offsets, until_offset)
        if first == 0 and last == len(offsets):
            return self
        headers = None if self.headers is None else self.headers[first:last]
        columns = [c[first:last] for c in (offsets, self.timestamps, self.keys, self.values)]
        return RecordColumns(*self[:3], *columns, headers)  # type: ignore[arg-type]


def read_columns(
    topic: str, partition: int, buffer: Buffer, position: int, header: BatchHeader
) -> RecordColumns:
    """Read the records of the batch at this position of the buffer.

    Raises InvalidRecord if the records do not fill the batch exactly.
    """
    packed = memoryview(buffer)[position + HEADER_BYTES : position + header.size_bytes]
    data = decompress(header.compression, packed, DECOMPRESSED_BYTES_MAX)
    count = header.record_count
    if count < 0 or count * RECORD_BYTES_MIN > len(data):
        raise InvalidRecord(f"{count} records cannot stand in {len(data)} bytes")
    columns = RecordColumns(topic, partition, header, range(0), [], [], [], None)
    try:
        if count == header.last_offset_delta + 1:
            columns = _read_dense(data, columns)
        else:
            columns = _read_thinned(data, columns)
    except (IndexError, UnicodeDecodeError) as error:
        raise InvalidRecord(f"the records of a batch are broken: {error}") from error
    if header.is_log_append_time:
        columns = columns._replace(timestamps=[header.max_timestamp] * count)
    return columns


def _read_dense(data: bytes, columns: RecordColumns) -> RecordColumns:
    """Read the records of a batch with consecutive offsets.

    The offset deltas are skipped, and of their varints only the length matters.
    """
    header, keys, values = columns.header, columns.keys, columns.values
    base_timestamp, count = header.base_timestamp, header.record_count
    timestamps: list[int] = []
    headers: list[Headers] | None = None
    add_time, add_key, add_value = timestamps.append, keys.append, values.append
    at = 0
    for place in range(count):
        number = data[at]
        if number < 0x80:
            end = at + 1 + (number >> 1)
            at += 2  # with the attributes, which are unused
        else:
            byte = data[at + 1]
            if byte < 0x80:  # two bytes are common, and decoded here without a call
                at += 2
                number = number & 0x7F | byte << 7
            else:
                number, at = _long(data, at + 1, number)
            end = at + (number >> 1)
            at += 1
        number = data[at]
        at += 1
        if number:
            if number >= 0x80:
                number, at = _long(data, at, number)
            add_time(base_timestamp + ((number >> 1) ^ -(number & 1)))
        else:
            add_time(base_timestamp)
        at += 1 if place < 64 else 2 if place < 8192 else 3 if place < 1 << 20 else 4
        number = data[at]
        at += 1
        if number == 1:
            add_key(None)
        else:
            if number >= 0x80:
                number, at = _long(data, at, number)
            start = at
            at += number >> 1
            add_key(data[start:at])
        number = data[at]
        at += 1
        if number == 1:
            add_value(None)
        else:
            if number >= 0x80:
                byte = data[at]
                if byte < 0x80:
                    at += 1
                    number = number & 0x7F | byte << 7
                else:
                    number, at = _long(data, at, number)
            start = at
            at += number >> 1
            add_value(data[start:at])
        if data[at]:
            if headers is None:
                headers = [NO_HEADERS] * count
            headers[place], at = _headers(data, at, end)
        else:
            at += 1
        if at != end:
            raise InvalidRecord("a record's length does not fit its fields")
    if at != len(data):
        raise InvalidRecord("the records of a batch do not fill it")
    offsets = range(header.base_offset, header.base_offset + count)
    return columns._replace(offsets=offsets, timestamps=timestamps, headers=headers)


def _read_thinned(data: bytes, columns: RecordColumns) -> RecordColumns:
    """Read records with gaps between their offsets, as compaction leaves them."""
    header = columns.header
    offsets, timestamps = list[int](), list[int]()
    headers: list[Headers] = []
    at, previous = 0, -1
    for _ in range(header.record_count):
        length, at = _signed(data, at)
        end = at + length
        delta, at = _signed(data, at + 1)
        timestamps.append(header.base_timestamp + delta)
        delta, at = _signed(data, at)
        if not previous < delta <= header.last_offset_delta:
            raise InvalidRecord("a record's offset does not fit its batch")
        previous = delta
        offsets.append(header.base_offset + delta)
        for column in (columns.keys, columns.values):
            length, at = _signed(data, at)
            column.append(None if length < 0 else data[at : at + length])
            at += max(length, 0)
        named, at = _headers(data, at, end)
        headers.append(named)
        if at != end:
            raise InvalidRecord("a record's length does not fit its fields")
    if at != len(data):
        raise InvalidRecord("the records of a batch do not fill it")
    return columns._replace(
        offsets=offsets, timestamps=timestamps, headers=headers if any(headers) else None
    )


def _long(data: bytes, at: int, number: int) -> tuple[int, int]:
    """Decode a varint whose first byte is `number`. Return its value and the index after it."""
    byte = data[at]
    at += 1
    number = number & 0x7F | (byte & 0x7F) << 7
    if byte < 0x80:  # the common case
        return number, at
    shift = 14
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise InvalidRecord("a varint is too long")


def _headers(data: bytes, at: int, end: int) -> tuple[Headers, int]:
    count, at = _signed(data, at)
    if not 0 <= count * 2 <= end - at:
        raise InvalidRecord(f"{count} headers cannot stand in {end - at} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length = data[at]
        if length >= 0x80 or length & 1:  # rare
            length, at = _signed(data, at)
            if length < 0:
                raise InvalidRecord("a header has no name")
        else:
            length >>= 1
            at += 1
        start = at
        at += length
        # as Java's clients do; producers may send any bytes
        name = data[start:at].decode("utf-8", "replace")
        length = data[at]
        if length == 1:
            headers.append((name, None))
            at += 1
            continue
        if length >= 0x80 or length & 1:
            length, at = _signed(data, at)
            if length < 0:
                headers.append((name, None))
                continue
        else:
            length >>= 1
            at += 1
        start = at
        at += length
        headers.append((name, data[start:at]))
    return tuple(headers), at


def _signed(data: bytes, at: int) -> tuple[int, int]:
    number, at = _long(data, at + 1, data[at]) if data[at] >= 0x80 else (data[at], at + 1)
    return (number >> 1) ^ -(number & 1), at
