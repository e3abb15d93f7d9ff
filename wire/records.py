"""Records inside a batch (version 2), for clients, tools and compaction.

A broker usually decodes no records. A record is

    length, attributes, timestamp delta, offset delta, key, value, headers

with every number except the attributes as a zigzag varint, and deltas counted from the batch
header.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..runtime.steps import Steps, run_to_end
from .compression import compress, decompress
from .errors import InvalidRecord
from .primitives import encode_unsigned_varint, encode_varint
from .record_batch import (
    APPEND_TIME_BIT,
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    decode_header,
    write_header,
)
from .record_rows import encode_headers

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
RECORDS_A_STEP = 128  # some 0.3 ms
_NO_DELTAS, _NO_HEADERS = bytes(3), bytes(1)  # including the attributes, which have no meaning yet
RECORD_BYTES_MIN = 7  # length, attributes, two deltas, null key, null value, no headers


class Record(NamedTuple):
    """A record. Offset and timestamp (ms) are absolute, key and value may be null."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def _sized(data: bytes | None) -> bytes:
    return b"\x01" if data is None else encode_unsigned_varint(len(data) << 1) + data


def encode_batch(records: Sequence[Record], **fields: Any) -> bytes:
    """Encode a batch in one step (see `encoding_batch`)."""
    return run_to_end(encoding_batch(records, **fields))


def encoding_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    leader_epoch: int = -1,
    compression: int = 0,
    transactional: bool = False,
    control: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    timestamp_type: int = 0,
    delete_horizon_ms: int | None = None,
    last_offset_delta: int | None = None,
) -> Steps[bytes]:
    """Encode a batch of at least one record in steps.

    base_offset is by default the offset of the first record. If delete_horizon_ms is given, it
    replaces the base timestamp (KIP-534). last_offset_delta is given for a compacted batch, which
    keeps that of the original batch.
    """
    first = records[0]
    base = first.offset if base_offset is None else base_offset
    base_timestamp = first.timestamp if delete_horizon_ms is None else delete_horizon_ms
    body: list[bytes] = []
    for number, (offset, timestamp, key, value, headers) in enumerate(records, 1):
        if number % RECORDS_A_STEP == 0:
            yield
        if offset == base and timestamp == base_timestamp:  # the first record, often the only one
            start = _NO_DELTAS
        else:
            start = b"\0" + encode_varint(timestamp - base_timestamp) + encode_varint(offset - base)
        tail = encode_headers(headers) if headers else _NO_HEADERS
        inner = start + _sized(key) + _sized(value) + tail
        body += (encode_unsigned_varint(len(inner) << 1), inner)
    attributes = (
        compression
        | (APPEND_TIME_BIT if timestamp_type else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
        | (DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0)
    )
    if last_offset_delta is None:
        last_offset_delta = records[-1].offset - base
    return _assemble(
        compress(compression, b"".join(body)),
        base,
        leader_epoch,
        attributes,
        last_offset_delta,
        base_timestamp,
        first.timestamp if len(records) == 1 else max(record.timestamp for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )


def encode_empty_batch(header: BatchHeader) -> bytes:
    """Encode a batch without records from the header of a batch that compaction has emptied.

    It preserves the last sequence number of the batch's producer.
    """
    return _assemble(
        b"",
        header.base_offset,
        header.partition_leader_epoch,
        header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT),
        header.last_offset_delta,
        -1,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        0,
    )


def _assemble(body: bytes, base_offset: int, leader_epoch: int, *fields: int) -> bytes:
    batch = bytearray(HEADER_BYTES) + body
    write_header(batch, base_offset, leader_epoch, *fields)
    return bytes(batch)


def decode_batch(
    buffer: Buffer, position: int = 0, *, max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """Decode the records of the batch at a position, without checking the checksum.

    Raises InvalidRecord if the records do not fill the batch exactly, if their offsets are out of
    range or do not rise, or if they have more than `max_decompressed_bytes`.
    """
    return run_to_end(
        decoding_batch(buffer, position, max_decompressed_bytes=max_decompressed_bytes)
    )


def decoding_batch(
    buffer: Buffer, position: int = 0, *, max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Steps[list[Record]]:
    """Decode a batch in steps, like `decode_batch`. The buffer must not change."""
    header = decode_header(buffer, position)
    end = position + header.size_bytes
    if end > len(buffer):
        raise InvalidRecord("the batch is cut short")
    data: Buffer = memoryview(buffer)[position + HEADER_BYTES : end]
    data = decompress(header.compression, data, max_decompressed_bytes)
    if header.record_count < 0 or header.record_count * RECORD_BYTES_MIN > len(data):
        raise InvalidRecord(f"{header.record_count} records cannot stand in {len(data)} bytes")
    records: list[Record] = []
    at = 0
    previous_delta = -1
    try:
        for count in range(1, header.record_count + 1):
            record, delta, at = _decode_record(data, at, header)
            if not previous_delta < delta <= header.last_offset_delta:
                raise InvalidRecord("a record's offset does not fit its batch")
            previous_delta = delta
            records.append(record)
            if count % RECORDS_A_STEP == 0:
                yield
    except (IndexError, UnicodeDecodeError) as error:
        raise InvalidRecord(f"the records of a batch are broken: {error}") from error
    if at != len(data):
        raise InvalidRecord("bytes beyond the last record of a batch")
    return records


def _decode_record(data: bytes, at: int, header: BatchHeader) -> tuple[Record, int, int]:
    """Decode the record at index `at` of the bytes. Return (record, offset delta, next index).

    Varints of one byte, the usual ones, are decoded inline.
    """
    length, at = varint_at(data, at)
    end = at + length
    if length < RECORD_BYTES_MIN - 1 or end > len(data):
        raise InvalidRecord("a record goes beyond its batch")
    at += 1  # attributes have no meaning yet
    number = data[at]
    if number < 0x80:
        timestamp_delta, at = (number >> 1) ^ -(number & 1), at + 1
    else:
        timestamp_delta, at = varint_at(data, at)
    number = data[at]
    if number < 0x80:
        delta, at = (number >> 1) ^ -(number & 1), at + 1
    else:
        delta, at = varint_at(data, at)
    key, at = bytes_at(data, at, end)
    value, at = bytes_at(data, at, end)
    if data[at] == 0:
        headers, at = (), at + 1
    else:
        headers, at = _headers(data, at, end)
    if at != end:
        raise InvalidRecord("a record's length does not fit its fields")
    timestamp = (
        header.max_timestamp
        if header.attributes & APPEND_TIME_BIT
        else header.base_timestamp + timestamp_delta
    )
    return Record(header.base_offset + delta, timestamp, key, value, headers), delta, at


def varint_at(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return (number, next position) of a zigzag varint.

    Raises InvalidRecord for an invalid varint, IndexError beyond the data.
    """
    value = data[at]
    at += 1
    if value >= 0x80:
        value &= 0x7F
        shift = 7
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise InvalidRecord("a varint is too long")
        if value >> 64:
            raise InvalidRecord("a varint has at most 64 bits")
    return (value >> 1) ^ -(value & 1), at


def bytes_at(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """Return (bytes, next position) in a record that ends at `end`, or raise InvalidRecord."""
    number = data[at]
    if number < 0x80:
        length, at = (number >> 1) ^ -(number & 1), at + 1
    else:
        length, at = varint_at(data, at)
    if length == -1:
        return None, at
    stop = at + length
    if length < 0 or stop > end:
        raise InvalidRecord("a key or value goes beyond its record")
    return data[at:stop], stop


def header_count_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return (number of headers, next position) within a record, or raise InvalidRecord."""
    count, at = varint_at(data, at)
    if count < 0 or count * 2 > end - at:
        raise InvalidRecord(f"{count} headers cannot stand in {end - at} bytes")
    return count, at


def _headers(data: bytes, at: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = header_count_at(data, at, end)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = bytes_at(data, at, end)
        if name is None:
            raise InvalidRecord("a header has no name")
        value, at = bytes_at(data, at, end)
        headers.append((name.decode(), value))
    return tuple(headers), at
