"""Batches with a right checksum whose header contradicts their records, and the error codes.

The error codes of Apache Kafka 4.4.0 were recorded on 2026-11-26 by Produce version 7, for a topic
with default configs. For some batches Kafka fails with UNKNOWN_SERVER_ERROR (-1), and we answer
INVALID_RECORD (87).
"""

from typing import NamedTuple

from oncelog.wire.compression import compress
from oncelog.wire.primitives import encode_varint
from oncelog.wire.record_batch import HEADER_BYTES, write_header

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
DECADE_MS = 315_360_000_000
INVALID_TIMESTAMP, INVALID_RECORD = 32, 87


class LyingBatch(NamedTuple):
    """A false batch, Kafka's error code, and ours for each value of oncelog.record.validation."""

    name: str
    data: bytes
    kafka: int
    batch: int
    skeleton: int
    full: int


def record(
    offset_delta: int = 0,
    timestamp_delta: int = 0,
    *,
    key: bytes = b"k",
    value: bytes = b"v",
    tail: bytes = b"\0",
    length: int | None = None,
) -> bytes:
    """Return an encoded record.

    `tail` has the bytes from the header count on. `length` is a false length to write.
    """
    deltas = encode_varint(timestamp_delta) + encode_varint(offset_delta)
    fields = encode_varint(len(key)) + key + encode_varint(len(value)) + value
    inner = b"\0" + deltas + fields + tail
    return encode_varint(len(inner) if length is None else length) + inner


def batch(
    body: bytes,
    count: int,
    now_ms: int,
    *,
    attributes: int = 0,
    last_delta: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
) -> bytes:
    """Return a batch with these encoded records, and a right length and checksum."""
    base = now_ms if base_timestamp is None else base_timestamp
    data = bytearray(HEADER_BYTES) + body
    write_header(
        data, 0, -1, attributes, count - 1 if last_delta is None else last_delta,
        base, base if max_timestamp is None else max_timestamp, -1, -1, -1, count,
    )  # fmt: skip
    return bytes(data)


def lying_batches(now_ms: int) -> tuple[LyingBatch, ...]:
    """Return all batches with false headers or records, with timestamps around `now_ms`."""
    one, two = record(), record(value=bytes(20)) + record(1, value=bytes(20))
    refused = (INVALID_RECORD,) * 4

    def of(body: bytes, count: int = 1, **fields: int) -> bytes:
        return batch(body, count, now_ms, **fields)

    def packed(codec: int, body: bytes, count: int) -> bytes:
        return of(compress(codec, body), count, attributes=codec)

    return (
        # counts
        LyingBatch("counts 5, holds 1", of(one, 5), *refused),
        LyingBatch("counts 2^31-1, holds 1", of(one, INT_MAX), *refused),
        LyingBatch("counts 2^31-1, holds 1, zstd", packed(4, one, INT_MAX), *refused),
        LyingBatch("counts 1,000,000, holds 1, gzip", packed(1, one, 1_000_000), *refused),
        LyingBatch("counts 3, holds 2", of(two, 3), 87, 0, 87, 87),
        LyingBatch("counts 1, holds 2", of(two, 1), 87, 0, 87, 87),
        LyingBatch("last offset delta 7 of 2", of(two, 2, last_delta=7), *refused),
        # offsets
        LyingBatch("offset deltas 0, 0, 0", of(one * 3, 3), 0, 0, 87, 87),
        LyingBatch("offset delta 2^31-1", of(record(INT_MAX)), 0, 0, 87, 87),
        LyingBatch("offset delta -1", of(record(-1)), 0, 0, 87, 87),
        LyingBatch("offset deltas 1, 0", of(record(1) + record(0), 2), 0, 0, 87, 87),
        # bytes that are no records
        LyingBatch("garbage", of(b"\xff" * 30), -1, 0, 87, 87),
        LyingBatch("zeros", of(bytes(30)), 87, 0, 87, 87),
        LyingBatch("nothing", of(b""), *refused),
        *(
            LyingBatch(
                f"plain bytes, marked as codec {codec}", of(one, attributes=codec), -1, 0, 87, 87
            )
            for codec in (1, 2, 3, 4)
        ),
        LyingBatch("trailing bytes", of(one + b"\0\0"), 87, 0, 87, 87),
        # lengths of records
        LyingBatch("record of 2^31-1 bytes", of(record(length=INT_MAX)), 87, 0, 87, 87),
        LyingBatch("record of -5 bytes", of(record(length=-5)), 87, 0, 87, 87),
        LyingBatch("record one byte too short", of(record(length=7)), 87, 0, 87, 87),
        LyingBatch(
            "record shorter than its deltas", of(record(0, DECADE_MS, length=6)), 87, 0, 87, 87
        ),
        # lengths in a record
        LyingBatch("2^31-1 headers", of(record(tail=encode_varint(INT_MAX))), 87, 0, 0, 87),
        LyingBatch("bytes after the headers", of(record(tail=b"\0\0")), 87, 0, 0, 87),
        LyingBatch("key beyond the record", of(b"\x10\0\0\0\x7fk\2v\0"), 87, 0, 0, 87),
        # times
        LyingBatch("10 years ahead by a delta", of(record(0, DECADE_MS)), 32, 0, 32, 32),
        LyingBatch("2^62 ms ahead by a delta", of(record(0, 2**62)), 32, 0, 32, 32),
        LyingBatch("a time beyond 64 bits", of(record(0, LONG_MAX)), 32, 0, 32, 32),
        LyingBatch(
            "maximum 10 years ahead of all", of(one, max_timestamp=now_ms + DECADE_MS), 0, 32, 0, 0
        ),
        LyingBatch("no maximum", of(one, max_timestamp=-1), 0, 0, 0, 0),
        LyingBatch("maximum below the base", of(one, max_timestamp=5), 0, 0, 0, 0),
        LyingBatch("no maximum, garbage", of(b"\xff" * 30, max_timestamp=-1), -1, 87, 87, 87),
        LyingBatch("append time claimed", of(one, attributes=8), 0, 0, 0, 0),
    )
