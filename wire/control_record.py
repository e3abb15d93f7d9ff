"""Transaction markers, which are control batches of one record (KIP-98). All sizes are in bytes.

key   = version 2, type 2 (0 abort, 1 commit)
value = version 2, coordinator epoch 4
"""

import struct
from enum import IntEnum

from .errors import InvalidRecord
from .record_batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    Buffer,
    write_header,
)
from .records import Record, decode_batch

_key = struct.Struct(">hh")
_value = struct.Struct(">hi")
# The record of a marker as written by every known client: its length, no attributes, zero deltas of
# time and offset, the key with its length, the value with its length, no headers.
_record = struct.Struct(">5shhchic")
_BEFORE_KEY, _BEFORE_VALUE, _HEADERS = bytes.fromhex("20 00 00 00 08"), b"\x0c", b"\0"
_ATTRIBUTES = TRANSACTIONAL_BIT | CONTROL_BIT
NO_SEQUENCE = -1
# The checked fields of its batch: length, magic, attributes, last offset delta, count.
_marker = struct.Struct(">8xi4xb4xhi8x8x8x2x4xi" + _record.format[1:])
_USUAL = _marker.size - 12, MAGIC, 0, 1, _BEFORE_KEY, _BEFORE_VALUE, _HEADERS


class ControlType(IntEnum):
    """The types of control records that end transactions. Kafka's other types are for Raft."""

    ABORT = 0
    COMMIT = 1


_TYPES = {int(each): each for each in ControlType}


def encode_marker(
    control_type: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Return the batch that ends a producer's transaction in one partition."""
    batch = bytearray(HEADER_BYTES) + _record.pack(
        _BEFORE_KEY, 0, control_type, _BEFORE_VALUE, 0, coordinator_epoch, _HEADERS
    )
    times = timestamp_ms, timestamp_ms
    producer = producer_id, producer_epoch, NO_SEQUENCE
    write_header(batch, base_offset, leader_epoch, _ATTRIBUTES, 0, *times, *producer, 1)
    return bytes(batch)


def decode_marker(batch: Buffer, position: int = 0) -> tuple[ControlType, int]:
    """Return (type, coordinator epoch) of the marker at a position, or raise InvalidRecord.

    A marker without compression and headers is decoded in one step, because each replica decodes
    each marker twice.
    """
    if len(batch) >= position + _marker.size:
        (
            size, magic, attributes, last_delta, count,
            before_key, key_version, number, before_value, _, coordinator_epoch, headers,
        ) = _marker.unpack_from(batch, position)  # fmt: skip
        found = size, magic, last_delta, count, before_key, before_value, headers
        known = _TYPES.get(number)
        is_plain = found == _USUAL and not attributes & COMPRESSION_MASK
        if is_plain and known is not None and key_version >= 0:
            return known, coordinator_epoch
    return _any_marker(batch, position)


def _any_marker(batch: Buffer, position: int) -> tuple[ControlType, int]:
    records = decode_batch(batch, position)
    if len(records) != 1:
        raise InvalidRecord("a control batch has one record")
    return marker_of(records[0])


def marker_of(record: Record) -> tuple[ControlType, int]:
    """Return (type, coordinator epoch) of a decoded control record, or raise InvalidRecord."""
    key, value = record.key, record.value
    if key is None or len(key) < _key.size or value is None or len(value) < _value.size:
        raise InvalidRecord("a control record is too short")
    version, number = _key.unpack_from(key)
    if version < 0 or number not in (ControlType.ABORT, ControlType.COMMIT):
        raise InvalidRecord(f"control type {number} is not a transaction marker")
    return ControlType(number), _value.unpack_from(value)[1]
