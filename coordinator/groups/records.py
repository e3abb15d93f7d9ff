"""The records of __consumer_offsets, in Kafka's format.

    key = type as int16 (0 and 1: a committed offset; 2: a classic group), then its fields
    value = version as int16, then its fields; a null value is a tombstone

The versions written are those of Apache Kafka 4.3. An offset is written as version 4 with the topic
id (KIP-848), or as version 1 if the request had its own retention. A group is written as version 3.
All earlier versions can be read, and unknown tagged fields are skipped (KIP-915). For all other key
types `decode_key` returns None (`consumer/record_codec` has those of consumer groups).
"""

import struct
from functools import lru_cache
from typing import NamedTuple

from ...wire.errors import InvalidRecord
from ...wire.primitives import (
    MalformedFrame,
    Reader,
    encode_count,
    encode_string,
    encode_tags,
)

NO_TOPIC_ID = bytes(16)
NO_TIMESTAMP = NO_EPOCH = -1

_OFFSET_KINDS = (0, 1)
_GROUP_KIND = 2
_OFFSET_VALUE_NEWEST = _GROUP_VALUE_NEWEST = 4
_EXPIRING_VALUE = 1  # the only version with an expire timestamp
_FLEXIBLE_FROM = 4
_TOPIC_ID_TAG = 0
_MEMBER_BYTES_MIN = 15

KEYS_REMEMBERED = 4096
# Longer keys are not cached, since a client may send names of 32 KB.
REMEMBERED_KEY_BYTES_MAX = 1_000
_NEWEST_PREFIX = b"\0\4"
_METADATA_AT = 14
_TOPIC_ID_TAGGED = b"\1\0\x10"  # one tagged field with its number and size
_offset_and_epoch = struct.Struct(">qi")
_tail = struct.Struct(">q3s16s")
_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")
_int64 = struct.Struct(">q")


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class OffsetValue(NamedTuple):
    """A committed offset.

    `expire_timestamp_ms` is -1 unless the commit had its own retention (OffsetCommit 2-4).
    `topic_id` is all zero if unknown.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: bytes = NO_TOPIC_ID


class GroupKey(NamedTuple):
    group_id: str


class MemberValue(NamedTuple):
    """A member of a group. `rebalance_timeout_ms` is -1 in records of version 0."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """A classic group as of its last rebalance. The timestamp is -1 before version 2."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int
    members: tuple[MemberValue, ...]


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Return the key of a committed offset."""
    names = encode_string(group_id, False) + encode_string(topic, False)
    return _int16.pack(_OFFSET_KINDS[-1]) + names + _int32.pack(partition)


def encode_offset_value(value: OffsetValue) -> bytes:
    """Return the value of a committed offset. An offset with its own retention gets version 1."""
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return b"".join(
            (
                _int16.pack(_EXPIRING_VALUE),
                _int64.pack(value.offset),
                encode_string(value.metadata, False),
                _int64.pack(value.commit_timestamp_ms),
                _int64.pack(value.expire_timestamp_ms),
            )
        )
    has_id = value.topic_id != NO_TOPIC_ID
    return b"".join(
        (
            _int16.pack(_OFFSET_VALUE_NEWEST),
            _int64.pack(value.offset),
            _int32.pack(value.leader_epoch),
            encode_string(value.metadata, True),
            _int64.pack(value.commit_timestamp_ms),
            encode_tags([(_TOPIC_ID_TAG, value.topic_id)] if has_id else []),
        )
    )


def encode_group_key(group_id: str) -> bytes:
    """Return the key of a classic group."""
    return _int16.pack(_GROUP_KIND) + encode_string(group_id, False)


def encode_group_value(value: GroupValue) -> bytes:
    """Return the value of a classic group, version 3."""
    parts = [
        _int16.pack(3),
        encode_string(value.protocol_type, False),
        _int32.pack(value.generation),
        encode_string(value.protocol, False),
        encode_string(value.leader, False),
        _int64.pack(value.current_state_timestamp_ms),
        encode_count(len(value.members), False),
    ]
    for member in value.members:
        parts += (
            encode_string(member.member_id, False),
            encode_string(member.group_instance_id, False),
            encode_string(member.client_id, False),
            encode_string(member.client_host, False),
            _int32.pack(member.rebalance_timeout_ms),
            _int32.pack(member.session_timeout_ms),
            encode_count(len(member.subscription), False),
            member.subscription,
            encode_count(len(member.assignment), False),
            member.assignment,
        )
    return b"".join(parts)


def decode_key(key: bytes | None) -> OffsetKey | GroupKey | None:
    """Return the key of an offset or a classic group, or None for any other type.

    Raises InvalidRecord for a missing or truncated key. The same few keys are committed repeatedly,
    so the latest keys are cached, which makes loading several times as fast.
    """
    if key is None:
        raise InvalidRecord("a record of __consumer_offsets has no key")
    return _remembered_key(key) if len(key) <= REMEMBERED_KEY_BYTES_MAX else _decoded_key(key)


def _decoded_key(key: bytes) -> OffsetKey | GroupKey | None:
    reader = Reader(memoryview(key))
    try:
        kind = reader.int16()
        if kind in _OFFSET_KINDS:
            return OffsetKey(reader.string(False), reader.string(False), reader.int32())
        if kind == _GROUP_KIND:
            return GroupKey(reader.string(False))
    except MalformedFrame as error:
        raise InvalidRecord(f"a key of __consumer_offsets is broken: {error}") from error
    return None


_remembered_key = lru_cache(KEYS_REMEMBERED)(_decoded_key)


def decode_offset_value(value: bytes) -> OffsetValue:
    """Decode the value of a committed offset, version 0 to 4, or raise InvalidRecord."""
    # The format written here, by far the most frequent, is decoded directly.
    # The length of the metadata, plus one.
    size = value[_METADATA_AT] if len(value) > _METADATA_AT else 0
    tail_at = _METADATA_AT + size
    if (
        0 < size < 0x80
        and len(value) == tail_at + _tail.size
        and value.startswith(_NEWEST_PREFIX)
        and value.startswith(_TOPIC_ID_TAGGED, tail_at + 8)
    ):
        offset, leader_epoch = _offset_and_epoch.unpack_from(value, 2)
        metadata = value[_METADATA_AT + 1 : tail_at]
        commit_timestamp_ms, _, topic_id = _tail.unpack_from(value, tail_at)
        if metadata.isascii():
            return OffsetValue(
                offset, leader_epoch, metadata.decode(), commit_timestamp_ms, -1, topic_id
            )
    return _read_offset_value(value)


def _read_offset_value(value: bytes) -> OffsetValue:
    reader = Reader(memoryview(value))
    try:
        version = _version(reader, _OFFSET_VALUE_NEWEST)
        flexible = version >= _FLEXIBLE_FROM
        offset = reader.int64()
        leader_epoch = reader.int32() if version >= 3 else NO_EPOCH
        metadata = reader.string(flexible)
        commit_timestamp_ms = reader.int64()
        expire_timestamp_ms = reader.int64() if version == _EXPIRING_VALUE else NO_TIMESTAMP
        tags = reader.tags() if flexible else {}
        topic_id = bytes(tags.get(_TOPIC_ID_TAG, NO_TOPIC_ID))
        if len(topic_id) != len(NO_TOPIC_ID):
            raise MalformedFrame("a topic id has 16 bytes")
    except MalformedFrame as error:
        raise InvalidRecord(f"a committed offset is broken: {error}") from error
    return OffsetValue(
        offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id
    )


def decode_group_value(value: bytes) -> GroupValue:
    """Decode the value of a classic group, version 0 to 4, or raise InvalidRecord."""
    reader = Reader(memoryview(value))
    try:
        version = _version(reader, _GROUP_VALUE_NEWEST)
        flexible = version >= _FLEXIBLE_FROM
        protocol_type = reader.string(flexible)
        generation = reader.int32()
        protocol = reader.nullable_string(flexible)
        leader = reader.nullable_string(flexible)
        timestamp_ms = reader.int64() if version >= 2 else NO_TIMESTAMP
        members = reader.array(flexible, _MEMBER_BYTES_MIN, lambda: _member(reader, version))
        if flexible:
            reader.tags()
    except MalformedFrame as error:
        raise InvalidRecord(f"a group's record is broken: {error}") from error
    return GroupValue(protocol_type, generation, protocol, leader, timestamp_ms, tuple(members))


def _member(reader: Reader, version: int) -> MemberValue:
    flexible = version >= _FLEXIBLE_FROM
    member = MemberValue(
        reader.string(flexible),
        reader.nullable_string(flexible) if version >= 3 else None,
        reader.string(flexible),
        reader.string(flexible),
        reader.int32() if version >= 1 else -1,
        reader.int32(),
        _bytes(reader, flexible),
        _bytes(reader, flexible),
    )
    if flexible:
        reader.tags()
    return member


def _bytes(reader: Reader, flexible: bool) -> bytes:
    value = reader.nullable_bytes(flexible)
    if value is None:
        raise MalformedFrame("a subscription or an assignment must not be null")
    return bytes(value)


def _version(reader: Reader, newest: int) -> int:
    version = reader.int16()
    if not 0 <= version <= newest:
        raise MalformedFrame(f"version {version} is not known")
    return version
