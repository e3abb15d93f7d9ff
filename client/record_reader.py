"""From a batch's bytes to records for a program: one loop, since it runs for every record.

Pure. The checksum has been looked at, so the bytes are those that a broker took; what they say
about their own lengths is still held against the batch. `wire.records.decode_batch` is the plain
form of the same.
"""

from typing import NamedTuple

from ..wire.compression import decompress
from ..wire.errors import InvalidRecord
from ..wire.record_batch import HEADER_BYTES, BatchHeader, Buffer
from ..wire.records import DECOMPRESSED_BYTES_MAX

RECORD_BYTES_MIN = 7  # length, attributes, two deltas, null key, null value, no headers
Headers = tuple[tuple[str, bytes | None], ...]


class ConsumerRecord(NamedTuple):
    """A record as a consumer gets it; timestamp in wall ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def read_records(
    topic: str, partition: int, buffer: Buffer, position: int, header: BatchHeader, from_offset: int
) -> list[ConsumerRecord]:
    """The records of the batch at a position, those below `from_offset` left out.

    Raises InvalidRecord when they do not fill their batch exactly.
    """
    packed = memoryview(buffer)[position + HEADER_BYTES : position + header.size_bytes]
    data = decompress(header.compression, packed, DECOMPRESSED_BYTES_MAX)
    count = header.record_count
    if count < 0 or count * RECORD_BYTES_MIN > len(data):
        raise InvalidRecord(f"{count} records cannot stand in {len(data)} bytes")
    try:
        records, at = _read(topic, partition, data, header)
    except (IndexError, UnicodeDecodeError) as error:
        raise InvalidRecord(f"the records of a batch are broken: {error}") from error
    if at != len(data):
        raise InvalidRecord("the records of a batch do not fill it")
    if header.base_offset < from_offset:
        records = [r for r in records if r.offset >= from_offset]
    return records


def _read(
    topic: str, partition: int, data: bytes, header: BatchHeader
) -> tuple[list[ConsumerRecord], int]:
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    records: list[ConsumerRecord] = []
    append, new, cls = records.append, tuple.__new__, ConsumerRecord
    at = 0
    for _ in range(header.record_count):
        number = data[at]
        at += 1
        if number >= 0x80:
            number, at = _long(data, at, number)
        end = at + (number >> 1)
        at += 1  # attributes mean nothing yet
        number = data[at]
        at += 1
        if number >= 0x80:
            number, at = _long(data, at, number)
        timestamp = base_timestamp + ((number >> 1) ^ -(number & 1))
        number = data[at]
        at += 1
        if number >= 0x80:
            number, at = _long(data, at, number)
        offset = base_offset + (number >> 1)
        number = data[at]
        at += 1
        if number == 1:
            key = None
        else:
            if number >= 0x80:
                number, at = _long(data, at, number)
            start = at
            at += number >> 1
            key = data[start:at]
        number = data[at]
        at += 1
        if number == 1:
            value = None
        else:
            if number >= 0x80:
                number, at = _long(data, at, number)
            start = at
            at += number >> 1
            value = data[start:at]
        if data[at] == 0:
            headers: Headers = ()
            at += 1
        else:
            headers, at = _headers(data, at, end)
        if at != end:
            raise InvalidRecord("a record's length does not fit its fields")
        if append_time is not None:
            timestamp = append_time
        append(new(cls, (topic, partition, offset, timestamp, key, value, headers)))
    return records, at


def _long(data: bytes, at: int, number: int) -> tuple[int, int]:
    """The rest of a varint whose first byte was `number`."""
    number &= 0x7F
    shift = 7
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
        length, at = _signed(data, at)
        if length < 0:
            raise InvalidRecord("a header has no name")
        name = data[at : at + length].decode()
        length, at = _signed(data, at + length)
        headers.append((name, None if length < 0 else data[at : at + length]))
        at += max(length, 0)
    return tuple(headers), at


def _signed(data: bytes, at: int) -> tuple[int, int]:
    number, at = _long(data, at + 1, data[at]) if data[at] >= 0x80 else (data[at], at + 1)
    return (number >> 1) ^ -(number & 1), at
