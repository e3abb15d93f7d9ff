"""The record batch, version 2 (KIP-98), with its 61-byte header and checksum.

    base offset 8, batch length 4, leader epoch 4, magic 1 | crc 4 | attributes 2,
    last offset delta 4, base timestamp 8, max timestamp 8, producer id 8, epoch 2,
    base sequence 4, record count 4 | records

The checksum (CRC-32C) covers everything from the attributes on. Base offset and leader epoch are
before the checksum, so a leader can change them in the received bytes without a new checksum. A
broker reads only this header, except where `records` is needed.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from ..runtime.c_calls import new_tuple
from .errors import (
    CorruptMessage,
    InvalidRecord,
    MessageTooLarge,
    UnsupportedCompressionType,
)

Buffer = bytes | bytearray | memoryview

HEADER_BYTES = 61
MAGIC = 2
LENGTH_COUNTS_FROM = 12  # batch length excludes the base offset and itself
CRC_AT, CRC_COVERS_FROM = 17, 21
ATTRIBUTES_AT, MAX_TIMESTAMP_AT, PRODUCER_AT = 21, 35, 43
SEQUENCE_MAX = 2**31 - 1

COMPRESSION_MASK = 0x07
APPEND_TIME_BIT, TRANSACTIONAL_BIT, CONTROL_BIT, DELETE_HORIZON_BIT = 0x08, 0x10, 0x20, 0x40
ZSTD = 4
NO_PRODUCER_ID = -1

_header = struct.Struct(">qiibIhiqqqhii")
_base_offset = struct.Struct(">q")
_length = struct.Struct(">i")
_leader_epoch = struct.Struct(">i")
_crc = struct.Struct(">I")
_attributes = struct.Struct(">h")
_timestamp = struct.Struct(">q")
_producer = struct.Struct(">qhi")


class BatchHeader(NamedTuple):
    """The header fields of a batch, in their order in the bytes. Timestamps are in ms."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Return the size of the whole batch in bytes, including the header."""
        return self.batch_length + LENGTH_COUNTS_FROM

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Return the offset after the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Return the sequence of the last record.

        Returns -1 without a producer id and for a control batch.
        """
        if self.base_sequence < 0:
            return -1
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def compression(self) -> int:
        """Return the codec (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd)."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Return whether max_timestamp is the broker's append time, valid for every record."""
        return bool(self.attributes & APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Return whether base_timestamp is a delete horizon of tombstones or markers (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def has_producer_id(self) -> bool:
        """Return whether an idempotent or transactional producer wrote the batch."""
        return self.producer_id >= 0


def decode_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Decode the header at a position, or raise CorruptMessage for an invalid one."""
    try:
        header = new_tuple(BatchHeader, _header.unpack_from(buffer, position))
    except struct.error:
        raise CorruptMessage("a batch header takes 61 bytes") from None
    if header.magic != MAGIC or header.batch_length < HEADER_BYTES - LENGTH_COUNTS_FROM:
        raise CorruptMessage(f"no batch: magic {header.magic}, length {header.batch_length}")
    return header


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise CorruptMessage unless the batch is complete and its checksum correct."""
    end = position + header.batch_length + LENGTH_COUNTS_FROM
    if end > len(buffer):
        raise CorruptMessage("the batch is cut short")
    if crc32c(memoryview(buffer)[position + CRC_COVERS_FROM : end]) != header.crc:
        raise CorruptMessage("the batch fails its checksum")


def iterate_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch, without checking checksums.

    A partial last batch is not yielded. Raises CorruptMessage for an invalid header.
    """
    position, end = 0, len(buffer)
    while position + HEADER_BYTES <= end:
        header = decode_header(buffer, position)
        next_position = position + header.batch_length + LENGTH_COUNTS_FROM
        if next_position > end:
            return
        yield position, header
        position = next_position


def split_batches(
    buffer: memoryview | bytes, batches_max: int, bytes_max: int
) -> Iterator[memoryview]:
    """Yield the buffer in parts of whole batches, with at most `batches_max` batches a part.

    A part with several batches has at most `bytes_max` bytes, except for the last part, to which
    the last batch, or a partial or invalid rest, is added whatever its size.
    """
    view, length_at = memoryview(buffer), _base_offset.size
    start, end = 0, len(view)
    while start < end:
        position = start
        for _ in range(batches_max):
            next_position = end
            if position + HEADER_BYTES <= end:
                length = _length.unpack_from(view, position + length_at)[0]
                if length > 0:
                    next_position = position + length + LENGTH_COUNTS_FROM
            if next_position >= end:
                position = end
                break
            if next_position - start > bytes_max and position > start:
                break
            position = next_position
        yield view[start:position]
        start = position


def restamp(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Write the leader's base offset and epoch into a batch. The checksum does not cover them."""
    _base_offset.pack_into(buffer, position, base_offset)
    _leader_epoch.pack_into(buffer, position + LENGTH_COUNTS_FROM, leader_epoch)


def restamp_append_time(buffer: bytearray | memoryview, position: int, now_ms: int) -> None:
    """Set a batch's maximum timestamp to `now_ms`, the broker's append time, with a new checksum.

    The batch is marked as a batch with message.timestamp.type=LogAppendTime.
    """
    _restamp_timestamp(buffer, position, now_ms, APPEND_TIME_BIT)


def restamp_max_timestamp(
    buffer: bytearray | memoryview, position: int, max_timestamp: int
) -> None:
    """Set a batch's maximum timestamp to that of its records (CreateTime), with a new checksum."""
    _restamp_timestamp(buffer, position, max_timestamp, 0)


def _restamp_timestamp(
    buffer: bytearray | memoryview, position: int, timestamp: int, append_time_bit: int
) -> None:
    attributes = _attributes.unpack_from(buffer, position + ATTRIBUTES_AT)[0]
    attributes = attributes & ~APPEND_TIME_BIT | append_time_bit
    _attributes.pack_into(buffer, position + ATTRIBUTES_AT, attributes)
    _timestamp.pack_into(buffer, position + MAX_TIMESTAMP_AT, timestamp)
    rewrite_crc(buffer, position)


def rewrite_crc(buffer: bytearray | memoryview, position: int = 0) -> None:
    """Compute the checksum of a batch again, and write it into the batch."""
    length = _length.unpack_from(buffer, position + _base_offset.size)[0]
    covered = memoryview(buffer)[
        position + CRC_COVERS_FROM : position + length + LENGTH_COUNTS_FROM
    ]
    _crc.pack_into(buffer, position + CRC_AT, crc32c(covered))


def write_header(batch: bytearray, base_offset: int, leader_epoch: int, *fields: int) -> None:
    """Write the header into the space before a batch's records, with its length and checksum.

    `fields` are all header fields from the attributes on, in order.
    """
    length = len(batch) - LENGTH_COUNTS_FROM
    _header.pack_into(batch, 0, base_offset, length, leader_epoch, MAGIC, 0, *fields)
    _crc.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_COVERS_FROM:]))


def rewrite_producer(
    buffer: bytearray, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    """Replace producer id, epoch and base sequence of a buffer's first batch, and its checksum."""
    _producer.pack_into(buffer, PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    rewrite_crc(buffer)


def validate_client_batch(
    records: Buffer, header: BatchHeader | None = None, *, max_message_bytes: int
) -> BatchHeader:
    """Validate a producer's records for one partition, which must be one complete, valid batch.

    header: the decoded header, if known, which is then returned. Only the header and the checksum
    are checked, not the records. Each refusal has the code of Apache Kafka 4.4, and the checks are
    made in Kafka's order. Three checks are stricter than in Kafka. Bytes after the batch are
    refused (Kafka drops an incomplete second batch), a producer id needs an epoch, and a
    transactional batch needs a producer id. Raises InvalidRecord, CorruptMessage, MessageTooLarge,
    UnsupportedCompressionType.
    """
    size_bytes = len(records)
    if size_bytes < HEADER_BYTES:
        raise InvalidRecord("a produce request carries one batch for each partition")
    header = header or BatchHeader._make(_header.unpack_from(records))
    offset, length, _, magic, crc, attributes, last_delta, _, _, producer_id, epoch, sequence, n = (
        header
    )
    if not 0 <= magic <= MAGIC or length < HEADER_BYTES - LENGTH_COUNTS_FROM:
        raise CorruptMessage(f"no batch: magic {magic}, length {length}")
    if length + LENGTH_COUNTS_FROM != size_bytes:
        raise InvalidRecord("a produce request carries exactly one whole batch for each partition")
    if magic != MAGIC:
        raise InvalidRecord("batches before version 2 are not accepted")
    if offset != 0:
        raise InvalidRecord("a client's batch begins at offset 0")
    if size_bytes > max_message_bytes:
        raise MessageTooLarge(
            f"the batch has {size_bytes} bytes, max.message.bytes is {max_message_bytes}"
        )
    if crc32c(memoryview(records)[CRC_COVERS_FROM:]) != crc:
        raise CorruptMessage("the batch fails its checksum")
    if n <= 0 or last_delta + 1 != n:
        raise InvalidRecord(f"{n} records do not take {last_delta + 1} offsets")
    if attributes & CONTROL_BIT:
        raise InvalidRecord("clients may not write control batches")
    if producer_id >= 0:
        if epoch < 0 or sequence < 0:
            raise InvalidRecord("a producer id needs an epoch and a sequence")
    elif attributes & TRANSACTIONAL_BIT:
        raise InvalidRecord("a transactional batch needs a producer id")
    if attributes & COMPRESSION_MASK > ZSTD:
        raise UnsupportedCompressionType(
            f"compression {attributes & COMPRESSION_MASK} is not known"
        )
    return header


def increment_sequence(sequence: int, by: int) -> int:
    """Return the sequence number `by` records later, where 0 follows 2^31-1."""
    if sequence > SEQUENCE_MAX - by:
        return by - (SEQUENCE_MAX - sequence) - 1
    return sequence + by
