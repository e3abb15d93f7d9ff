"""The records of consumer groups, byte for byte as Kafka writes them.

A key is its type (two bytes) and strings, never flexible. A value is version 0 (two bytes) and
flexible, with fields in order, then tagged fields. Each value here has at most one tagged field,
number 0. Unknown tagged fields are skipped (KIP-915).
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, NamedTuple

from ....wire.errors import InvalidRecord
from ....wire.primitives import (
    MalformedFrame,
    Reader,
    encode_count,
    encode_string,
    encode_tags,
)
from ..records import KEYS_REMEMBERED, REMEMBERED_KEY_BYTES_MAX
from .records import (
    ClassicMetadata,
    ConsumerKey,
    ConsumerMember,
    ConsumerMemberKey,
    ConsumerValue,
    CurrentAssignment,
    CurrentAssignmentKey,
    EpochsByTopic,
    GroupEpoch,
    GroupEpochKey,
    GroupTopics,
    GroupTopicsKey,
    ResolvedPattern,
    ResolvedPatternKey,
    TargetAssignment,
    TargetAssignmentKey,
    TargetEpoch,
    TargetEpochKey,
)

_TOPIC_BYTES_MIN = 18
_NO_TAGS = b"\0"
_int16 = struct.Struct(">h")
_VERSION = _int16.pack(0)


class _Field(NamedTuple):
    read: Callable[[Reader], Any]
    write: Callable[[Any], bytes]


def _fixed(code: str, read: Callable[[Reader], int]) -> _Field:
    return _Field(read, struct.Struct(">" + code).pack)


def _numbers(values: list[int]) -> bytes:
    return encode_count(len(values), True) + struct.pack(f">{len(values)}i", *values)


def _read_numbers(reader: Reader, is_nullable: bool = False) -> tuple[int, ...]:
    count = reader.count(True, 4) if is_nullable else reader.length(True, 4)
    return struct.unpack(f">{count}i", reader.take(4 * count)) if count > 0 else ()


def _read_strings(reader: Reader) -> tuple[str, ...]:
    return tuple(reader.array(True, 1, lambda: reader.string(True)))


def _write_strings(values: tuple[str, ...]) -> bytes:
    return encode_count(len(values), True) + b"".join(encode_string(v, True) for v in values)


def _read_partitions(reader: Reader) -> dict[bytes, frozenset[int]]:
    partitions: dict[bytes, frozenset[int]] = {}
    for _ in range(reader.length(True, _TOPIC_BYTES_MIN)):
        topic_id = reader.uuid()
        partitions[topic_id] = frozenset(_read_numbers(reader))
        reader.tags()
    return partitions


def _write_partitions(partitions: Mapping[bytes, frozenset[int]]) -> bytes:
    parts = [encode_count(len(partitions), True)]
    for topic_id, numbers in partitions.items():
        parts += (topic_id, _numbers(sorted(numbers)), _NO_TAGS)
    return b"".join(parts)


def _read_epochs(reader: Reader) -> dict[bytes, dict[int, int]]:
    """Read partitions with their epochs, -1 for a missing epoch.

    Epochs are missing before Kafka 4.3, and in a damaged record.
    """
    epochs: dict[bytes, dict[int, int]] = {}
    for _ in range(reader.length(True, _TOPIC_BYTES_MIN)):
        topic_id, numbers = reader.uuid(), _read_numbers(reader)
        tagged = reader.tags().get(0)
        known = () if tagged is None else _read_numbers(Reader(tagged), is_nullable=True)
        if len(known) != len(numbers):
            known = (-1,) * len(numbers)
        epochs[topic_id] = dict(zip(numbers, known, strict=True))
    return epochs


def _write_epochs(epochs: EpochsByTopic) -> bytes:
    parts = [encode_count(len(epochs), True)]
    for topic_id, by_partition in epochs.items():
        numbers = sorted(by_partition)
        known = _numbers([by_partition[number] for number in numbers])
        parts += (topic_id, _numbers(numbers), encode_tags([(0, known)]))
    return b"".join(parts)


def _read_classic(reader: Reader) -> ClassicMetadata | None:
    if reader.int8() < 1:
        return None
    session_timeout_ms = reader.int32()
    protocols: list[tuple[str, bytes]] = []
    for _ in range(reader.length(True, 3)):
        name, metadata = reader.string(True), reader.nullable_bytes(True)
        if metadata is None:
            raise MalformedFrame("the metadata of a protocol must not be null")
        protocols.append((name, bytes(metadata)))
        reader.tags()
    reader.tags()
    return ClassicMetadata(session_timeout_ms, tuple(protocols))


def _write_classic(classic: ClassicMetadata | None) -> bytes:
    if classic is None:
        return b"\0"
    parts = [
        b"\1",
        struct.pack(">i", classic.session_timeout_ms),
        encode_count(len(classic.protocols), True),
    ]
    for name, metadata in classic.protocols:
        parts += (encode_string(name, True), encode_count(len(metadata), True), metadata, _NO_TAGS)
    parts.append(_NO_TAGS)
    return b"".join(parts)


def _write_string(value: str | None) -> bytes:
    return encode_string(value, True)


def _read_string(reader: Reader) -> str:
    return reader.string(True)


def _read_nullable(reader: Reader) -> str | None:
    return reader.nullable_string(True)


_STRING = _Field(_read_string, _write_string)
_NULLABLE = _Field(_read_nullable, _write_string)
_INT8 = _fixed("b", Reader.int8)
_INT32 = _fixed("i", Reader.int32)
_INT64 = _fixed("q", Reader.int64)
_STRINGS = _Field(_read_strings, _write_strings)
_PARTITIONS = _Field(_read_partitions, _write_partitions)
_EPOCHS = _Field(_read_epochs, _write_epochs)
_CLASSIC = _Field(_read_classic, _write_classic)


@dataclass(frozen=True, slots=True)
class _Kind:
    """The encoding of one record type.

    The tagged field is the last field of the value, and is omitted if it has its default.
    """

    number: int
    key: type[ConsumerKey]
    value: type[ConsumerValue]
    plain: tuple[_Field, ...]
    tagged: _Field | None = None
    tagged_default: Any = None


_MEMBER_FIELDS = _NULLABLE, _NULLABLE, _STRING, _STRING, _STRINGS, _NULLABLE, _INT32, _NULLABLE
_KINDS = (
    _Kind(3, GroupEpochKey, GroupEpoch, (_INT32,), _INT64, 0),
    _Kind(4, GroupTopicsKey, GroupTopics, ()),
    # Kafka's default is not null, so a member without the field would use the classic protocol.
    _Kind(5, ConsumerMemberKey, ConsumerMember, _MEMBER_FIELDS, _CLASSIC, ClassicMetadata(0, ())),
    _Kind(6, TargetEpochKey, TargetEpoch, (_INT32,), _INT64, 0),
    _Kind(7, TargetAssignmentKey, TargetAssignment, (_PARTITIONS,)),
    _Kind(8, CurrentAssignmentKey, CurrentAssignment, (_INT32, _INT32, _INT8, _EPOCHS, _EPOCHS)),
    _Kind(16, ResolvedPatternKey, ResolvedPattern, (_STRINGS, _INT64, _INT64)),
)
_BY_NUMBER = {kind.number: kind for kind in _KINDS}
_BY_KEY = {kind.key: kind for kind in _KINDS}
_KEY_NAMES = {kind.key: [field.name for field in fields(kind.key)] for kind in _KINDS}
_VALUE_NAMES = {kind.value: [field.name for field in fields(kind.value)] for kind in _KINDS}


def encode_consumer_key(key: ConsumerKey) -> bytes:
    """Return the bytes of a key."""
    strings = (encode_string(getattr(key, name), False) for name in _KEY_NAMES[type(key)])
    return _int16.pack(_BY_KEY[type(key)].number) + b"".join(strings)


def encode_consumer_value(key: ConsumerKey, value: ConsumerValue) -> bytes:
    """Return the bytes of a value that belongs to the key."""
    kind = _BY_KEY[type(key)]
    assert type(value) is kind.value and kind.plain
    values = [getattr(value, name) for name in _VALUE_NAMES[kind.value]]
    parts = [_VERSION]
    parts += [field.write(item) for field, item in zip(kind.plain, values, strict=False)]
    tags: list[tuple[int, bytes]] = []
    if kind.tagged is not None and values[-1] != kind.tagged_default:
        tags.append((0, kind.tagged.write(values[-1])))
    parts.append(encode_tags(tags))
    return b"".join(parts)


def decode_consumer_key(key: bytes) -> ConsumerKey | None:
    """Return the key of a record, or None for a type that consumer groups do not have.

    Raises InvalidRecord for a truncated key.
    """
    return _remembered_key(key) if len(key) <= REMEMBERED_KEY_BYTES_MAX else _decoded_key(key)


def _decoded_key(key: bytes) -> ConsumerKey | None:
    reader = Reader(memoryview(key))
    try:
        kind = _BY_NUMBER.get(reader.int16())
        if kind is None:
            return None
        return kind.key(*[reader.string(False) for _ in _KEY_NAMES[kind.key]])
    except MalformedFrame as error:
        raise InvalidRecord(f"a key of __consumer_offsets is broken: {error}") from error


_remembered_key = lru_cache(KEYS_REMEMBERED)(_decoded_key)


def decode_consumer_value(key: ConsumerKey, value: bytes) -> ConsumerValue:
    """Return the value of a record with this key, or raise InvalidRecord."""
    kind = _BY_KEY[type(key)]
    reader = Reader(memoryview(value))
    try:
        if (version := reader.int16()) != 0:
            raise MalformedFrame(f"version {version} is not known")
        if kind.value is GroupTopics:
            return GroupTopics()
        values = [field.read(reader) for field in kind.plain]
        tags = reader.tags()
        if kind.tagged is not None:
            known = 0 in tags
            values.append(kind.tagged.read(Reader(tags[0])) if known else kind.tagged_default)
    except MalformedFrame as error:
        raise InvalidRecord(f"a consumer group's record is broken: {error}") from error
    if kind.value is CurrentAssignment:
        least = max(values[0], 0)  # a static member that has left temporarily has epoch -2
        values[3:] = [_with_default(epochs, least) for epochs in values[3:]]
    return kind.value(*values)


def _with_default(
    epochs: dict[bytes, dict[int, int]], member_epoch: int
) -> dict[bytes, dict[int, int]]:
    """Return the epochs, with the member's epoch for partitions without an epoch of their own."""
    for by_partition in epochs.values():
        for number, epoch in by_partition.items():
            if epoch < 0:
                by_partition[number] = member_epoch
    return epochs
