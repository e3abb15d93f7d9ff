"""The messages between brokers, with their types and the bytes of the replica fetch.

The transport carries a type, a header and frames. Small control messages are dataclasses, encoded
by `peer/codec`. A replica fetch is sent for every batch written, so its header is one flat msgpack
list of integers, and records are sent beside it as frames, without a copy.

    request  = [session_id, session_epoch, broker_epoch, max_wait_ms, max_bytes,
                [added: slot, topic_id, partition, leader_epoch, fetch_offset,
                        last_fetched_epoch, log_start_offset, ...],
                [moved: slot, fetch_offset, last_fetched_epoch, log_start_offset, ...],
                [removed: slot, ...]]
    response = [session_id, session_epoch, error, broker_epoch,
                [answers: slot, error, high_watermark, log_start_offset, diverging_epoch,
                          diverging_end_offset, record bytes, ...]]

A slot is a number that the follower assigns to a partition for the life of a session.
"""

from collections.abc import Sequence
from enum import IntEnum
from itertools import chain
from typing import Any, NamedTuple

import msgpack

from ..runtime.c_calls import new_tuple
from ..wire.errors import ErrorCode, InvalidRequest

NO_EPOCH = -1
NO_OFFSET = -1
SLOTS_MAX = 200_000  # the limit of one message, and of the partitions per peer
_ADDED, _MOVED, _ANSWER = 7, 4, 7  # numbers for each entry
# Smaller records are joined into one frame, since a frame costs more than the copy.
JOIN_BELOW_BYTES = 32 * 1024
_INT = {int}
_REQUEST_TYPES = [int] * 5 + [list] * 3
_RESPONSE_TYPES = [int] * 4 + [list]
_NOTHING = memoryview(b"")
_packer = msgpack.Packer()  # shared, since creating a packer costs as much as packing


class PeerMessage(IntEnum):
    """The type of a message between brokers, with numbers that never change."""

    RAFT = 1  # one-way; the payload belongs to the Raft engine
    REPLICA_FETCH = 2  # bulk request
    REGISTER_BROKER = 3
    HEARTBEAT = 4
    ALTER_PARTITION = 5
    ADMIN = 6  # all other requests to the controller
    PRODUCER_IDS = 7
    WRITE_TRANSACTION_MARKERS = 8
    VERIFY_TRANSACTION = 9  # a partition leader asks a transaction coordinator (KIP-890)
    DESCRIBE_QUORUM = 10
    PING = 11
    METADATA_APPLIED = 13  # a broker waits until another has applied a decision
    # From a partition leader, about a transaction that has been open for a long time.
    DESCRIBE_TRANSACTION = 12


class MalformedPeerMessage(InvalidRequest):
    """The error of bytes from a peer that do not match their type."""


class AddedSlot(NamedTuple):
    """A partition that joins the session, with the follower's position."""

    slot: int
    topic_id: bytes
    partition: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class MovedSlot(NamedTuple):
    """A new position of the follower, which has all records below fetch_offset."""

    slot: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class ReplicaFetchRequest(NamedTuple):
    """A follower's poll. `session_id` 0 opens a session, and the next poll has session_epoch 1."""

    session_id: int
    session_epoch: int
    broker_epoch: int
    max_wait_ms: int
    max_bytes: int
    added: Sequence[AddedSlot] = ()
    moved: Sequence[MovedSlot] = ()
    removed: Sequence[int] = ()


class SlotAnswer(NamedTuple):
    """The leader's answer for one slot (a partition of the session).

    An error other than OFFSET_OUT_OF_RANGE removes the slot, and the follower adds it again when it
    retries. diverging_end_offset is -1 unless the logs diverge. With OFFSET_OUT_OF_RANGE
    diverging_end_offset is the leader's log end offset.
    """

    slot: int
    error: int = 0
    high_watermark: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    diverging_epoch: int = NO_EPOCH
    diverging_end_offset: int = NO_OFFSET
    records: memoryview | bytes = b""

    @property
    def ends_slot(self) -> bool:
        """Return whether the slot is no longer part of the session."""
        return self.error not in (0, ErrorCode.OFFSET_OUT_OF_RANGE)

    @property
    def says_nothing(self) -> bool:
        """Return whether the answer has no records, no error, and no divergence."""
        return not self.error and self.diverging_end_offset < 0 and not self.records


class ReplicaFetchResponse(NamedTuple):
    """The leader's answer. A non-zero error concerns the whole session."""

    session_id: int
    session_epoch: int
    error: int = 0
    broker_epoch: int = -1  # the leader's, by which a follower notices another incarnation
    answers: Sequence[SlotAnswer] = ()


def encode_fetch_request(request: ReplicaFetchRequest) -> bytes:
    """Encode the header of a replica fetch, which has no frames."""
    *numbers, added, moved, removed = request
    positions = list(moved[0]) if len(moved) == 1 else _flat(moved)  # almost always one slot
    return _packer.pack([*numbers, _flat(added) if added else [], positions, removed])


def decode_fetch_request(header: bytes) -> ReplicaFetchRequest:
    """Decode a replica fetch, or raise MalformedPeerMessage."""
    session_id, session_epoch, broker_epoch, max_wait_ms, max_bytes, added, moved, removed = (
        _unpack_list(header, _REQUEST_TYPES)
    )
    if removed:
        _check_numbers(removed)
    if len(moved) == _MOVED and set(map(type, moved)) == _INT:  # one partition with a new position
        positions = [new_tuple(MovedSlot, moved)]
    else:
        _check_numbers(moved, _MOVED)
        positions = [MovedSlot(*moved[i : i + _MOVED]) for i in range(0, len(moved), _MOVED)]
    slots: list[AddedSlot] = []
    if added:
        if len(added) % _ADDED:
            raise MalformedPeerMessage(f"expected a list of {_ADDED} values for each slot")
        for i in range(0, len(added), _ADDED):
            entry = added[i : i + _ADDED]
            topic_id = entry[1]
            if type(topic_id) is not bytes or len(topic_id) != 16:
                raise MalformedPeerMessage("a topic id is 16 bytes")
            _check_numbers(entry[:1] + entry[2:])
            slots.append(AddedSlot._make(entry))
    start = session_id, session_epoch, broker_epoch, max_wait_ms, max_bytes
    return new_tuple(ReplicaFetchRequest, (*start, slots, positions, removed))


def encode_fetch_response(
    response: ReplicaFetchResponse,
) -> tuple[bytes, list[memoryview | bytes]]:
    """Return the header and the frames with the records, in the order of the answers."""
    session_id, session_epoch, session_error, broker_epoch, answers = response
    head = session_id, session_epoch, session_error, broker_epoch
    frames: list[memoryview | bytes] = []
    if len(answers) == 1:
        *numbers, records = answers[0]
        size_bytes = len(records)
        if size_bytes:
            frames.append(records)
        return _packer.pack([*head, [*numbers, size_bytes]]), frames
    numbers: list[int] = []
    small: list[memoryview | bytes] = []
    for slot, error, high_watermark, log_start, epoch, end, records in answers:
        size_bytes = len(records)
        numbers += (slot, error, high_watermark, log_start, epoch, end, size_bytes)
        if size_bytes >= JOIN_BELOW_BYTES:
            if small:
                frames.append(_joined(small))
                small = []
            frames.append(records)
        elif size_bytes:
            small.append(records)
    if small:
        frames.append(_joined(small))
    return _packer.pack([*head, numbers]), frames


def decode_fetch_response(
    header: bytes, frames: Sequence[memoryview | bytes]
) -> ReplicaFetchResponse:
    """Decode the answer to a replica fetch, with records as views of the frames.

    Raises MalformedPeerMessage.
    """
    values = _unpack_list(header, _RESPONSE_TYPES)
    numbers = values[4]
    if len(numbers) == _ANSWER and len(frames) == 1 and set(map(type, numbers)) == _INT:
        records = memoryview(frames[0])
        if numbers[6] != len(records) or not records:
            raise MalformedPeerMessage("records go beyond their frame, or do not fill it")
        numbers[6] = records
        values[4] = [new_tuple(SlotAnswer, numbers)]
        return new_tuple(ReplicaFetchResponse, values)
    _check_numbers(numbers, _ANSWER)
    answers: list[SlotAnswer] = []
    remaining = iter(frames)
    frame, position = _NOTHING, 0
    for i in range(0, len(numbers), _ANSWER):
        slot, error, high_watermark, log_start, epoch, end, size_bytes = numbers[i : i + _ANSWER]
        records = b""
        if size_bytes:
            if position == len(frame):
                frame, position = memoryview(next(remaining, b"")), 0
            if not 0 < size_bytes <= len(frame) - position:
                raise MalformedPeerMessage("records go beyond their frame")
            records = frame[position : position + size_bytes]
            position += size_bytes
        answers.append(SlotAnswer(slot, error, high_watermark, log_start, epoch, end, records))
    if position != len(frame) or next(remaining, None) is not None:
        raise MalformedPeerMessage("frames without an answer")
    values[4] = answers
    return ReplicaFetchResponse(*values)


def _flat(entries: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return all fields of all entries."""
    return list(chain.from_iterable(entries))


def _joined(pieces: list[memoryview | bytes]) -> memoryview | bytes:
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _unpack_list(header: bytes, types: list[type]) -> list[Any]:
    try:
        values = msgpack.unpackb(header, max_array_len=SLOTS_MAX * _ADDED, max_map_len=0)
    except (ValueError, msgpack.UnpackException) as error:
        raise MalformedPeerMessage(f"not msgpack: {error}") from error
    if values.__class__ is not list or list(map(type, values)) != types:
        raise MalformedPeerMessage(f"expected a list of {types}")
    return values


def _check_numbers(values: list[Any], width: int = 1) -> None:
    """Raise MalformedPeerMessage unless `values` are integers, `width` for each entry.

    A message may have thousands of values, so the check calls only functions written in C.
    """
    if values and (len(values) % width or set(map(type, values)) != _INT):
        raise MalformedPeerMessage(f"expected {width} whole numbers for each entry")
