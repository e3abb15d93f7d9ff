"""Transaction markers: control batches of one record (KIP-98).

key   = version 2, type 2 (0 abort, 1 commit)
value = version 2, coordinator epoch 4
"""

import struct
from enum import IntEnum

from .errors import InvalidRecord
from .record_batch import Buffer
from .records import Record, decode_batch, encode_batch

_key = struct.Struct(">hh")
_value = struct.Struct(">hi")


class ControlType(IntEnum):
    """What a control record says; others than these two concern Raft snapshots."""

    ABORT = 0
    COMMIT = 1


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
    """The batch that ends a producer's transaction in one partition."""
    record = Record(
        base_offset, timestamp_ms, _key.pack(0, control_type), _value.pack(0, coordinator_epoch)
    )
    return encode_batch(
        [record],
        leader_epoch=leader_epoch,
        transactional=True,
        control=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def decode_marker(batch: Buffer, position: int = 0) -> tuple[ControlType, int]:
    """(type, coordinator epoch) of a marker. Raises InvalidRecord."""
    records = decode_batch(batch, position)
    if len(records) != 1:
        raise InvalidRecord("a control batch has one record")
    return marker_of(records[0])


def marker_of(record: Record) -> tuple[ControlType, int]:
    """(type, coordinator epoch) of a marker's record. Raises InvalidRecord."""
    key, value = record.key, record.value
    if key is None or len(key) < _key.size or value is None or len(value) < _value.size:
        raise InvalidRecord("a control record is too short")
    version, number = _key.unpack_from(key)
    if version < 0 or number not in (ControlType.ABORT, ControlType.COMMIT):
        raise InvalidRecord(f"control type {number} is not a transaction marker")
    return ControlType(number), _value.unpack_from(value)[1]
