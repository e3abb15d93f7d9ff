"""A record batch that grows record by record, for a producer.

Each record is encoded when it is appended, so that the size of the batch is always exactly known.
Closing a batch takes one join, one checksum and one header. `records.encode_batch` creates the same
bytes from a list of records.
"""

import struct

from crc32c import crc32c

from .compression import NONE, compress
from .primitives import encode_unsigned_varint
from .record_batch import (
    CRC_AT,
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_COUNTS_FROM,
    MAGIC,
    TRANSACTIONAL_BIT,
)
from .record_rows import Headers, SizedRows, encode_headers

RECORD_BYTES_EXTRA = 36  # the maximum size of a record without headers, besides key and value
_header = struct.Struct(">qiibIhiqqqhii")
_crc = struct.Struct(">I")
_ROOM = bytes(HEADER_BYTES)  # the header, which is written last
_NULL = b"\x01"
_NO_HEADERS = b"\0"
_TABLE_SIZE = 1 << 14
# The zigzag varint of a small non-negative number is the varint of twice the number.
_VARINTS = tuple(encode_unsigned_varint(value) for value in range(_TABLE_SIZE))


class BatchBuilder:
    """A record batch under construction, which needs at least one record before `build`."""

    __slots__ = ("_base_timestamp", "_chunks", "_max_timestamp", "count", "size_bytes")

    def __init__(self) -> None:
        self._chunks: list[bytes | memoryview] = [_ROOM]
        self._base_timestamp = self._max_timestamp = 0
        self.count, self.size_bytes = 0, HEADER_BYTES

    def append(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> None:
        """Add a record. The timestamp is wall-clock time in ms."""
        count = self.count
        if count:
            delta = timestamp - self._base_timestamp
        else:
            self._base_timestamp = self._max_timestamp = timestamp
            delta = 0
        zigzag = delta << 1 if delta >= 0 else (-delta << 1) - 1
        place = count << 1
        if key is None:
            start, key = _NULL, b""
        else:
            twice = len(key) << 1
            start = _VARINTS[twice] if twice < _TABLE_SIZE else encode_unsigned_varint(twice)
        if value is None:
            middle, value = _NULL, b""
        else:
            twice = len(value) << 1
            middle = _VARINTS[twice] if twice < _TABLE_SIZE else encode_unsigned_varint(twice)
        record = b"".join(
            (
                b"\0",  # attributes
                _VARINTS[zigzag] if zigzag < _TABLE_SIZE else encode_unsigned_varint(zigzag),
                _VARINTS[place] if place < _TABLE_SIZE else encode_unsigned_varint(place),
                start,
                key,
                middle,
                value,
                encode_headers(headers) if headers else _NO_HEADERS,
            )
        )
        twice = len(record) << 1
        length = _VARINTS[twice] if twice < _TABLE_SIZE else encode_unsigned_varint(twice)
        if timestamp > self._max_timestamp:  # noqa: PLR1730 (a call would cost more)
            self._max_timestamp = timestamp  # only now: the join may have refused the record
        self._chunks += (length, record)
        self.count = count + 1
        self.size_bytes += len(length) + len(record)

    def extend(self, rows: SizedRows, at: int, batch_bytes: int) -> int:
        """Add rows from index `at` on while the batch has at most `batch_bytes`.

        Returns the number of added rows. An empty batch accepts at least one row.
        """
        taken = rows.fitting(at, batch_bytes - self.size_bytes, self.count)
        if taken <= 0:
            return 0
        times = rows.timestamps
        base = times if isinstance(times, int) else int(times[at])
        if self.count:
            base = self._base_timestamp
        encoded, newest = rows.encode(at, taken, self.count, base)
        self._max_timestamp = max(newest, self._max_timestamp) if self.count else newest
        self._base_timestamp = base
        self._chunks.append(encoded)
        self.count += taken
        self.size_bytes += len(encoded)
        return taken

    def build(
        self,
        *,
        compression: int = NONE,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
    ) -> bytearray:
        """Return the batch with base offset 0. Raises UnsupportedCompressionType."""
        chunks = self._chunks
        if compression != NONE:
            chunks = [_ROOM, compress(compression, b"".join(chunks[1:]))]
        batch = bytearray().join(chunks)  # the only copy
        _header.pack_into(
            batch,
            0,
            0,
            len(batch) - LENGTH_COUNTS_FROM,
            -1,
            MAGIC,
            0,
            compression | (TRANSACTIONAL_BIT if is_transactional else 0),
            self.count - 1,
            self._base_timestamp,
            self._max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self.count,
        )
        _crc.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_COVERS_FROM:]))
        return batch

    def release(self) -> None:
        """Free the encoded records after `build`. The batch's counts and sizes stay available."""
        self._chunks.clear()


def size_of_headers(headers: Headers) -> int:
    """Return an upper bound of the bytes that these headers take in a record."""
    return sum(len(name) * 4 + len(value or b"") + 10 for name, value in headers)
