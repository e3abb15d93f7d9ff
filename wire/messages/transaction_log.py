"""Records of Kafka's __transaction_state, with the coordinator's state of a transactional id.

The fields of a record, with their sizes in bytes, are

    key    version 2 (0), transactional id
    value  version 2, producer id 8, producer epoch 2, timeout 4, state 1,
           partitions (nullable), last update 8, start 8

Version 1 of the value is flexible (KIP-482). Its tagged fields are 0 previous producer id, 1 next
producer id, 2 client's transaction version, 3 next producer epoch (KIP-939), and LAST_EPOCH_TAG
last producer epoch. Kafka keeps the last producer epoch in memory only, so it fences a retry of
InitProducerId after a fail-over (KIP-360). Kafka's readers skip LAST_EPOCH_TAG, which is unknown to
them. A record without a value (a tombstone) removes the id.
"""

import struct
from typing import NamedTuple

from ...runtime.c_calls import new_tuple
from ..primitives import (
    MalformedFrame,
    Reader,
    encode_count,
    encode_string,
    encode_tags,
    encode_unsigned_varint,
)

KEY_VERSION = 0
VALUE_VERSION = 1
LAST_EPOCH_TAG = 1000
NO_PRODUCER_ID = -1
NO_EPOCH = -1
PARTITION_BYTES_MIN = 4
TOPIC_BYTES_MIN = 2
_int16 = struct.Struct(">h")
_int64 = struct.Struct(">q")
_head = struct.Struct(">hqhib")
_times = struct.Struct(">qq")
_KEY_HEAD = _int16.pack(KEY_VERSION)
_LAST_EPOCH_BYTES = encode_unsigned_varint(LAST_EPOCH_TAG)
_TAGGED = {  # name, layout, default
    0: ("previous_producer_id", _int64, NO_PRODUCER_ID),
    1: ("next_producer_id", _int64, NO_PRODUCER_ID),
    2: ("client_transaction_version", _int16, 0),
    3: ("next_producer_epoch", _int16, NO_EPOCH),
    LAST_EPOCH_TAG: ("last_producer_epoch", _int16, NO_EPOCH),
}


class TransactionLogValue(NamedTuple):
    """The value of a record, with times in wall-clock ms (-1 for none).

    partitions: pairs (topic, indexes), or None without a transaction.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: int
    partitions: tuple[tuple[str, tuple[int, ...]], ...] | None
    last_update_ms: int
    start_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_transaction_version: int = 0
    next_producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH


def encode_transaction_log_key(transactional_id: str) -> bytes:
    """Encode the key of an id, which has at most 32767 bytes of UTF-8."""
    return _int16.pack(KEY_VERSION) + encode_string(transactional_id, flexible=False)


def decode_transaction_log_key(data: bytes) -> str:
    """Decode the transactional id, or raise MalformedFrame."""
    if data[:2] == _KEY_HEAD and int.from_bytes(data[2:4], "big") == len(data) - 4 <= 0x7FFF:
        try:
            return data[4:].decode()
        except UnicodeDecodeError:
            raise MalformedFrame("a string is not UTF-8") from None
    reader = Reader(memoryview(data))
    version = reader.int16()
    if version != KEY_VERSION:
        raise MalformedFrame(f"version {version} of a transaction log key is not known")
    transactional_id = reader.string(flexible=False)
    reader.finish()
    return transactional_id


def encode_transaction_log_value(value: TransactionLogValue, version: int = VALUE_VERSION) -> bytes:
    """Encode a value in Kafka's format. Version 0 lacks the tagged fields."""
    flexible = version >= 1
    parts = [
        _head.pack(version, value.producer_id, value.producer_epoch, value.timeout_ms, value.state)
    ]
    if value.partitions is None:
        parts.append(encode_count(-1, flexible))
    else:
        parts.append(encode_count(len(value.partitions), flexible))
        for topic, indexes in value.partitions:
            parts += (encode_string(topic, flexible), encode_count(len(indexes), flexible))
            parts.append(struct.pack(f">{len(indexes)}i", *indexes))
            if flexible:
                parts.append(b"\0")
    parts.append(_times.pack(value.last_update_ms, value.start_ms))
    if flexible:
        parts.append(encode_tags(_tags_of(value)))
    return b"".join(parts)


def decode_transaction_log_value(data: bytes) -> TransactionLogValue:
    """Decode versions 0 and 1, or raise MalformedFrame."""
    try:
        if (value := _short(data)) is not None:
            return value
    except (IndexError, struct.error, UnicodeDecodeError):
        pass  # the complete decoder below raises the error
    return _any(data)


def _any(data: bytes) -> TransactionLogValue:
    reader = Reader(memoryview(data))
    version = reader.int16()
    if not 0 <= version <= VALUE_VERSION:
        raise MalformedFrame(f"version {version} of a transaction log value is not known")
    flexible = version >= 1
    return TransactionLogValue(
        producer_id=reader.int64(),
        producer_epoch=reader.int16(),
        timeout_ms=reader.int32(),
        state=reader.int8(),
        partitions=_partitions(reader, flexible),
        last_update_ms=reader.int64(),
        start_ms=reader.int64(),
        **_rest(reader, flexible),
    )


def _short(data: bytes) -> TransactionLogValue | None:
    """Decode a value of the newest version in which each length takes one byte, as almost always.

    Returns None, or raises any exception, for other forms and malformed values. The function is
    optimised, because every replica decodes each committed value.
    """
    version, producer_id, producer_epoch, timeout_ms, state = _head.unpack_from(data)
    position = _head.size
    topic_count = data[position]
    if version != VALUE_VERSION or topic_count >= 0x80:
        return None
    position += 1
    topics: list[tuple[str, tuple[int, ...]]] = []
    for _ in range(topic_count - 1):
        name_end = position + data[position]
        if not position < name_end < position + 0x80:
            return None
        count = data[name_end]
        if not 0 < count < 0x80:
            return None
        indexes: tuple[int, ...] = struct.unpack_from(f">{count - 1}i", data, name_end + 1)
        topics.append((data[position + 1 : name_end].decode(), indexes))
        position = name_end + 4 * count - 3
        if data[position]:  # the topic has tagged fields
            return None
        position += 1
    last_update_ms, start_ms = _times.unpack_from(data, position)
    position += _times.size
    rest = [NO_PRODUCER_ID, NO_PRODUCER_ID, 0, NO_EPOCH, NO_EPOCH]
    previous = -1
    tag_count = data[position]
    position += 1
    for _ in range(tag_count):
        place = data[position]
        if place > 3:
            if data[position : position + 2] != _LAST_EPOCH_BYTES:
                return None
            place = 4
            position += 1
        layout = _int64 if place < 2 else _int16
        if not previous < place or data[position + 1] != layout.size:
            return None
        (rest[place],) = layout.unpack_from(data, position + 2)
        position += 2 + layout.size
        previous = place
    if position != len(data):
        return None
    partitions = tuple(topics) if topic_count else None
    head = producer_id, producer_epoch, timeout_ms, state
    return new_tuple(TransactionLogValue, (*head, partitions, last_update_ms, start_ms, *rest))


def _rest(reader: Reader, flexible: bool) -> dict[str, int]:
    """Return the tagged fields by name, and check that they end the message."""
    tags = reader.tags() if flexible else {}
    reader.finish()
    if not tags.keys() <= _TAGGED.keys():  # every replica must know each field of a record
        raise MalformedFrame(f"tagged fields {sorted(tags.keys() - _TAGGED.keys())} are not known")
    values: dict[str, int] = {}
    for tag, data in tags.items():
        name, layout, _ = _TAGGED[tag]
        if len(data) != layout.size:
            raise MalformedFrame(f"tagged field {tag} has {len(data)} bytes, not {layout.size}")
        values[name] = layout.unpack(data)[0]
    return values


def _tags_of(value: TransactionLogValue) -> list[tuple[int, bytes]]:
    """Return the tagged fields that differ from their defaults, in ascending order."""
    return [
        (tag, layout.pack(field))
        for tag, (name, layout, default) in _TAGGED.items()
        if (field := getattr(value, name)) != default
    ]


def _partitions(reader: Reader, flexible: bool) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    count = reader.count(flexible, TOPIC_BYTES_MIN)
    if count < 0:
        return None
    topics: list[tuple[str, tuple[int, ...]]] = []
    for _ in range(count):
        topic = reader.string(flexible)
        indexes = tuple(reader.array(flexible, PARTITION_BYTES_MIN, reader.int32))
        if flexible:
            reader.tags()
        topics.append((topic, indexes))
    return tuple(topics)
