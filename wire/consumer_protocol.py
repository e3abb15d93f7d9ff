"""The embedded consumer protocol, with the subscriptions and assignments of classic groups.

This file is pure. The coordinator does not interpret these bytes. The leader of a group reads the
subscriptions of all members, so the format must equal that of Kafka's Java client (KIP-62; KIP-429
adds owned partitions, KIP-792 the generation, KIP-881 the rack). From newer versions only the known
fields are read.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from .identifiers import TopicPartition
from .primitives import ELEMENTS_MAX, MalformedFrame, Reader, encode_string

PROTOCOL_TYPE = "consumer"
SUBSCRIPTION_NEWEST, ASSIGNMENT_NEWEST = 3, 3
NO_GENERATION = -1
_int16, _int32 = struct.Struct(">h"), struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's topics, and the partitions that the member has owned since `generation`."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    user_data: bytes = b""
    instance_id: str | None = None  # from the broker, not part of the bytes
    rack_id: str | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    """Encode a subscription in version 3."""
    chunks = [_int16.pack(SUBSCRIPTION_NEWEST), _int32.pack(len(subscription.topics))]
    chunks += [encode_string(topic, False) for topic in sorted(subscription.topics)]
    chunks += (_sized(subscription.user_data), _partitions(subscription.owned))
    chunks += (_int32.pack(subscription.generation), encode_string(subscription.rack_id, False))
    return b"".join(chunks)


def decode_subscription(
    data: bytes, instance_id: str | None = None, elements_max: int = ELEMENTS_MAX
) -> Subscription:
    """Decode a subscription of any version, or raise MalformedFrame.

    `instance_id` is not in the bytes. It becomes a field of the result.
    """
    reader = Reader(memoryview(data), elements_max=elements_max)
    version = reader.int16()
    if version < 0:
        raise MalformedFrame("a subscription's version is negative")
    topics = tuple(reader.array(False, 2, lambda: reader.string(False)))
    user_data = bytes(reader.nullable_bytes(False) or b"")
    owned = read_partitions(reader) if version >= 1 and reader.remaining else ()
    has_generation = version >= 2 and reader.remaining >= 4
    generation = reader.int32() if has_generation else NO_GENERATION
    rack_id = reader.nullable_string(False) if version >= 3 and reader.remaining else None
    return Subscription(topics, owned, generation, user_data, instance_id, rack_id)


def encode_assignment(
    partitions: Iterable[TopicPartition], version: int = 1, user_data: bytes | None = b""
) -> bytes:
    """Encode an assignment. All versions have the same format, and all clients read version 1."""
    data = _int32.pack(-1) if user_data is None else _sized(user_data)
    return _int16.pack(version) + _partitions(partitions) + data


def assignment_for(subscription: bytes, partitions: Iterable[TopicPartition]) -> bytes:
    """Encode an assignment in the version of the member's subscription."""
    version = int.from_bytes(subscription[:2], "big", signed=True)
    return encode_assignment(partitions, max(0, min(version, ASSIGNMENT_NEWEST)), None)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Decode an assignment of any version. Empty bytes stand for no partitions.

    Raises MalformedFrame.
    """
    return decode_whole_assignment(data)[0]


def decode_whole_assignment(
    data: bytes, elements_max: int = ELEMENTS_MAX
) -> tuple[tuple[TopicPartition, ...], bytes]:
    """Return the partitions and the user data of an assignment. Raises MalformedFrame."""
    if not data:
        return (), b""
    reader = Reader(memoryview(data), elements_max=elements_max)
    if reader.int16() < 0:
        raise MalformedFrame("an assignment's version is negative")
    partitions = read_partitions(reader)
    return partitions, bytes(reader.nullable_bytes(False) or b"") if reader.remaining else b""


def encode_sticky(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """Encode the user data of the eager sticky assignor (owned partitions and generation)."""
    return _partitions(owned) + _int32.pack(generation)


def decode_sticky(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    """Decode the user data of the eager sticky assignor as (owned partitions, generation).

    Returns no partitions if the data is unreadable.
    """
    try:
        reader = Reader(memoryview(data))
        owned = read_partitions(reader)
        return owned, reader.int32() if reader.remaining >= 4 else NO_GENERATION
    except MalformedFrame:
        return (), NO_GENERATION


def read_partitions(reader: Reader) -> tuple[TopicPartition, ...]:
    """Read an array of topics with their partitions."""
    found: list[TopicPartition] = []
    for _ in range(max(0, reader.count(False, 6))):
        topic = reader.string(False)
        found += [(topic, number) for number in reader.array(False, 4, reader.int32)]
    return tuple(found)


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    chunks = [_int32.pack(len(topics))]
    for topic, numbers in topics.items():
        chunks += (encode_string(topic, False), _int32.pack(len(numbers)))
        chunks += [_int32.pack(number) for number in numbers]
    return b"".join(chunks)


def _sized(data: bytes) -> bytes:
    return _int32.pack(len(data)) + data
