"""The bytes of the write-ahead log.

A segment is a sequence of frames, and damage is detected by frame. A frame is `magic, crc32c,
length, number` and then records. The records of one group commit are one frame, or two if they
cross a segment boundary. Frames are numbered without gaps, and frame n+1 is written only after
frame n was synced. Therefore a valid frame after a broken frame shows the kind of damage. If frame
n+1 is broken and frame n+2 is valid, synced bytes are damaged. If no valid frame follows, the last
write is incomplete after a crash, and was never acknowledged.
"""

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

FORMAT_VERSION = 1
FRAME = struct.Struct("<4sIIQ")  # magic, crc32c of what follows it, length of the records, number
FRAME_MAGIC = b"OLF1"
RECORD = struct.Struct("<BHQQI")  # kind, group, two numbers, length of the payload
_AFTER_CRC = struct.Struct("<IQ")
_STATE = struct.Struct("<QqQQQ?")
_SNAPSHOT = struct.Struct(
    "<4sIHQQQ"
)  # magic, crc32c of what follows it, group, index, term, length
_SNAPSHOT_MAGIC = b"OLS1"


class RecordKind(IntEnum):
    """The types of records. Brackets in the comments explain the two numbers of a record."""

    SEGMENT = 1  # the first record of a segment: (node id, format version), payload: the voters
    STATE = 2  # the state of a group when the segment was begun
    ENTRY = 3  # (index, term), payload: the command
    TERM = 4  # (term, voted for + 1; 0 = none)
    TRUNCATE = 5  # (first index that is removed, -)
    BASE = 6  # (index, term): entries up to this index are removed, and are in the snapshot
    RESET = 7  # (index, term): all entries are removed, since a snapshot was installed
    VOTER = 8  # the group may vote here
    SEAL = 9  # proves that the frame before was synced
    NON_VOTER = 10  # the group may no longer vote here, because this disk has lost earlier promises


class WalRecord(NamedTuple):
    kind: int
    group_id: int
    first: int
    second: int
    payload: bytes


class RaftGroupState(NamedTuple):
    """The state of a group in a segment's head, which allows older segments to be deleted."""

    term: int
    voted_for: int  # -1: none
    base_index: int
    base_term: int
    end_index: int  # the last entry of the log when the segment was begun
    is_voter: bool


NO_STATE = RaftGroupState(0, -1, 0, 0, 0, False)


def state_after(state: RaftGroupState, kind: int, first: int, second: int) -> RaftGroupState:
    """Return the state of a group after a record of the journal.

    The writer and the recovery of the journal both use this function. Raises ValueError for an
    unknown type.
    """
    match kind:
        case RecordKind.ENTRY:
            return state._replace(end_index=max(first, state.end_index))
        case RecordKind.TERM:
            return state._replace(term=first, voted_for=second - 1)
        case RecordKind.TRUNCATE:
            return state._replace(end_index=first - 1)
        case RecordKind.BASE:
            return state._replace(base_index=first, base_term=second)
        case RecordKind.RESET:
            return state._replace(base_index=first, base_term=second, end_index=first)
        case RecordKind.VOTER | RecordKind.NON_VOTER:
            return state._replace(is_voter=kind == RecordKind.VOTER)
        case _:
            raise ValueError(f"record kind {kind} is of a newer version")


class Frame(NamedTuple):
    number: int
    records: bytes
    next_position: int


def encode_record(kind: int, group_id: int, first: int, second: int, payload: bytes = b"") -> bytes:
    """Encode one record."""
    return RECORD.pack(kind, group_id, first, second, len(payload)) + payload


def encode_state(state: RaftGroupState) -> bytes:
    """Encode the payload of a STATE record."""
    return _STATE.pack(*state)


def decode_state(payload: bytes) -> RaftGroupState:
    """Decode the payload of a STATE record."""
    return RaftGroupState(*_STATE.unpack(payload))


def encode_frame(number: int, records: Sequence[bytes]) -> bytes:
    """Encode a frame from its records. The checksum includes length and number."""
    body = b"".join(records)
    rest = _AFTER_CRC.pack(len(body), number)
    return FRAME_MAGIC + struct.pack("<I", crc32c(body, crc32c(rest))) + rest + body


def decode_frame(segment: bytes, position: int) -> Frame | None:
    """Return the frame at `position`, or None if it is not valid."""
    if position + FRAME.size > len(segment):
        return None
    magic, checksum, length, number = FRAME.unpack_from(segment, position)
    start = position + FRAME.size
    if magic != FRAME_MAGIC or start + length > len(segment):
        return None
    records = segment[start : start + length]
    if crc32c(records, crc32c(_AFTER_CRC.pack(length, number))) != checksum:
        return None
    return Frame(number, records, start + length)


def decode_records(records: bytes) -> Iterator[WalRecord]:
    """Yield the records of a valid frame."""
    position = 0
    while position < len(records):
        kind, group_id, first, second, length = RECORD.unpack_from(records, position)
        position += RECORD.size
        yield WalRecord(kind, group_id, first, second, records[position : position + length])
        position += length


def find_frame_after(data: bytes, number: int) -> int | None:
    """Return the position of a valid frame with a number above `number`, or None."""
    position = 0
    while (position := data.find(FRAME_MAGIC, position)) >= 0:
        frame = decode_frame(data, position)
        if frame is not None and frame.number > number:
            return position
        position += 1
    return None


class RaftSnapshot(NamedTuple):
    """The state of a state machine after all entries up to `last_index`."""

    last_index: int
    last_term: int
    payload: bytes | memoryview


def encode_snapshot(group_id: int, snapshot: RaftSnapshot) -> bytes:
    """Encode a snapshot file. The leader sends the same bytes to followers.

    Call this function in an executor, like `decode_snapshot`, since the checksum and the join of a
    large snapshot release the GIL.
    """
    rest = struct.pack("<HQQQ", group_id, *snapshot[:2], len(snapshot.payload))
    checksum = crc32c(snapshot.payload, crc32c(rest))
    head = _SNAPSHOT_MAGIC + struct.pack("<I", checksum) + rest
    return b"".join((head, snapshot.payload))


def decode_snapshot(group_id: int, data: bytes) -> RaftSnapshot | None:
    """Decode a snapshot file. Return None if it is damaged or of another group."""
    if len(data) < _SNAPSHOT.size:
        return None
    magic, checksum, owner, index, term, length = _SNAPSHOT.unpack_from(data)
    payload = memoryview(data)[_SNAPSHOT.size :]
    if magic != _SNAPSHOT_MAGIC or owner != group_id or length != len(payload):
        return None
    if crc32c(payload, crc32c(data[8 : _SNAPSHOT.size])) != checksum:
        return None
    return RaftSnapshot(index, term, payload)
