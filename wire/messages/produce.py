"""Produce (API 0), versions 3 to 13, without copying records.

Versions and what each adds:

    3  transactional id (KIP-98)
    5  log start offset
    7  zstd (KIP-110)
    8  errors of single records (KIP-467)
    9  flexible format
    10 current leader and its endpoint in the answer (KIP-951)
    12 implicit AddPartitionsToTxn (KIP-890)
    13 topic ids instead of names (KIP-516)

Records stay views of the received frame, and the encoder of a request returns a list of pieces.
"""

import struct
from dataclasses import dataclass
from typing import NamedTuple

from ...runtime.c_calls import new_tuple
from ..primitives import (
    REQUEST_ELEMENTS_MAX,
    Buffer,
    MalformedFrame,
    encode_count,
    encode_string,
    skip_tags_at,
    unsigned_varint_at,
)
from .produce_answer import (
    FLEXIBLE_FROM,
    TOPIC_IDS_FROM,
    ProducedPartition,
    ProducedTopic,
    ProduceResponse,
    decode_response,
    encode_response,
)

# Names of the answer.
__all__ = [
    "ProduceResponse",
    "ProducedPartition",
    "ProducedTopic",
    "decode_response",
    "encode_response",
]

OLDEST, NEWEST = 3, 13
_acks_timeout = struct.Struct(">hi")
_opening_v3 = struct.Struct(">hii")
_opening_v9 = struct.Struct(">hiB")  # with the first byte of the number of topics
_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")
_two_int32 = struct.Struct(">ii")
_index_and_byte = struct.Struct(">iB")
_NULL_ARRAY = "an array must not be null"


@dataclass(slots=True)
class ProducePartition:
    """The records for one partition, or None if the client sent null."""

    index: int
    records: Buffer | None


class ProduceTopic(NamedTuple):
    """A topic with records, by name or, from version 13 on, by id."""

    name: str | None
    topic_id: bytes | None
    partitions: list[ProducePartition]


class ProduceRequest(NamedTuple):
    """A Produce request. `timeout_ms` is the maximum wait with acks -1 (all)."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class TooManyElements(MalformedFrame):
    """The error of a request with more topics and partitions than `elements_max`."""


def decode_request(
    body: memoryview, version: int, elements_max: int = REQUEST_ELEMENTS_MAX
) -> ProduceRequest:
    """Decode a request, with records as views of `body`. Raises MalformedFrame or TooManyElements.

    Bytes after the request are ignored, as in every request (see `control.decode_request`). No
    Reader is used, because this function runs for every batch. A slice that reaches beyond the body
    is too short, but then the next field, or the last check of the position, fails.
    """
    try:
        if version >= FLEXIBLE_FROM:
            request, position = _decode_flexible(body, version, elements_max)
        else:
            request, position = _decode_classic(body, elements_max)
    except (struct.error, IndexError):
        raise MalformedFrame("the message is cut short") from None
    except UnicodeDecodeError:
        raise MalformedFrame("a string is not UTF-8") from None
    if position > len(body):
        raise MalformedFrame("the message is cut short")
    return request


def _decode_flexible(
    body: memoryview, version: int, elements_max: int
) -> tuple[ProduceRequest, int]:
    transactional_id, position = (None, 1) if body[0] == 0 else _compact_string(body, 0)
    acks, timeout_ms, topic_count = _opening_v9.unpack_from(body, position)
    if topic_count < 0x80:
        position += 7
    else:
        topic_count, position = unsigned_varint_at(body, position + 6)
    elements = topic_count
    topics: list[ProduceTopic] = []
    if not topic_count:
        raise MalformedFrame(_NULL_ARRAY)
    for _ in range(topic_count - 1):
        name = topic_id = None
        if version >= TOPIC_IDS_FROM:
            topic_id = bytes(body[position : position + 16])
            position += 16
        else:
            name, position = _compact_string(body, position)
            if name is None:
                raise MalformedFrame("a topic needs a name")
        count = body[position]
        if count < 0x80:
            position += 1
        else:
            count, position = unsigned_varint_at(body, position)
        elements += count
        if elements > elements_max:
            raise TooManyElements("too many array elements for one message")
        partitions: list[ProducePartition] = []
        if not count:
            raise MalformedFrame(_NULL_ARRAY)
        for _ in range(count - 1):
            index, length = _index_and_byte.unpack_from(body, position)
            if length < 0x80:
                position += 5
            else:
                length, position = unsigned_varint_at(body, position + 4)
            end = position + length - 1
            if length:
                partitions.append(ProducePartition(index, body[position:end]))
            else:
                end = position
                partitions.append(ProducePartition(index, None))
            position = end + 1 if body[end] == 0 else skip_tags_at(body, end)
        position = position + 1 if body[position] == 0 else skip_tags_at(body, position)
        topics.append(new_tuple(ProduceTopic, (name, topic_id, partitions)))
    position = position + 1 if body[position] == 0 else skip_tags_at(body, position)
    fields = transactional_id, acks, timeout_ms, topics
    return new_tuple(ProduceRequest, fields), position


def _compact_string(body: memoryview, position: int) -> tuple[str | None, int]:
    length = body[position]
    if length < 0x80:
        position += 1
    else:
        length, position = unsigned_varint_at(body, position)
    if length == 0:
        return None, position
    if length > 0x8000:
        raise MalformedFrame("a string has at most 32767 bytes")
    end = position + length - 1
    return str(body[position:end], "utf-8"), end


def _decode_classic(body: memoryview, elements_max: int) -> tuple[ProduceRequest, int]:
    transactional_id, position = _string(body, 0)
    acks, timeout_ms, topic_count = _opening_v3.unpack_from(body, position)
    elements = topic_count
    position += 10
    topics: list[ProduceTopic] = []
    for _ in range(_some(topic_count)):
        name, position = _string(body, position)
        if name is None:
            raise MalformedFrame("a topic needs a name")
        count = _int32.unpack_from(body, position)[0]
        elements += count
        if elements > elements_max:
            raise TooManyElements("too many array elements for one message")
        position += 4
        partitions: list[ProducePartition] = []
        for _ in range(_some(count)):
            index, length = _two_int32.unpack_from(body, position)
            position += 8
            if length >= 0:
                end = position + length
                partitions.append(ProducePartition(index, body[position:end]))
                position = end
            elif length == -1:
                partitions.append(ProducePartition(index, None))
            else:
                raise MalformedFrame("records have a negative length")
        topics.append(ProduceTopic(name, None, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics), position


def _string(body: memoryview, position: int) -> tuple[str | None, int]:
    length = _int16.unpack_from(body, position)[0]
    position += 2
    if length < 0:
        if length != -1:
            raise MalformedFrame("a string has a negative length")
        return None, position
    end = position + length
    return str(body[position:end], "utf-8"), end


def encode_request(request: ProduceRequest, version: int) -> list[Buffer]:
    """Return the parts of a Produce request's body, without copying the records."""
    flexible = version >= FLEXIBLE_FROM
    end = b"\0" if flexible else b""
    pieces: list[Buffer] = []
    head = encode_string(request.transactional_id, flexible)
    head += _acks_timeout.pack(request.acks, request.timeout_ms)
    head += encode_count(len(request.topics), flexible)
    for topic in request.topics:
        if version >= TOPIC_IDS_FROM:
            assert topic.topic_id is not None
            head += topic.topic_id
        else:
            head += encode_string(topic.name or "", flexible)
        head += encode_count(len(topic.partitions), flexible)
        for partition in topic.partitions:
            records = partition.records
            head += _int32.pack(partition.index)
            head += encode_count(-1 if records is None else len(records), flexible)
            if records is not None:
                pieces += (head, records)
                head = b""
            head += end
        head += end
    pieces.append(head + end)
    return pieces


def _some(count: int) -> int:
    if count < 0:
        raise MalformedFrame(_NULL_ARRAY)
    return count
