"""What members of a consumer group tell one another: subscriptions and assignments as bytes.

Pure. The broker passes these on unread, so they must be those of Kafka's Java client: whoever leads
the group reads everybody's (KIP-62, 429 owned partitions, 792 generation, 881 rack). Versions above
ours are read as far as we know them.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from ...wire.identifiers import TopicPartition
from ...wire.primitives import MalformedFrame, Reader, encode_string
from ..by_topic import entries_by_topic

PROTOCOL_TYPE = "consumer"
SUBSCRIPTION_NEWEST, ASSIGNMENT_NEWEST = 3, 3
NO_GENERATION = -1
_int16, _int32 = struct.Struct(">h"), struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants, and what it has; generation: in which it got that."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    user_data: bytes = b""
    instance_id: str | None = None  # given by the broker, not in the bytes


def encode_subscription(subscription: Subscription) -> bytes:
    """Version 3."""
    chunks = [_int16.pack(SUBSCRIPTION_NEWEST), _int32.pack(len(subscription.topics))]
    chunks += [encode_string(topic, False) for topic in sorted(subscription.topics)]
    chunks += (_sized(subscription.user_data), _partitions(subscription.owned))
    chunks += (_int32.pack(subscription.generation), encode_string(None, False))
    return b"".join(chunks)


def decode_subscription(data: bytes, instance_id: str | None = None) -> Subscription:
    """Any version. Raises MalformedFrame."""
    reader = Reader(memoryview(data))
    version = reader.int16()
    if version < 0:
        raise MalformedFrame("a subscription's version is negative")
    topics = tuple(reader.array(False, 2, lambda: reader.string(False)))
    user_data = bytes(reader.nullable_bytes(False) or b"")
    owned = read_partitions(reader) if version >= 1 and reader.remaining else ()
    has_generation = version >= 2 and reader.remaining >= 4
    generation = reader.int32() if has_generation else NO_GENERATION
    return Subscription(topics, owned, generation, user_data, instance_id)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Version 1, which everybody reads."""
    return _int16.pack(1) + _partitions(partitions) + _sized(b"")


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Any version; no bytes are no partitions. Raises MalformedFrame."""
    if not data:
        return ()
    reader = Reader(memoryview(data))
    if reader.int16() < 0:
        raise MalformedFrame("an assignment's version is negative")
    return read_partitions(reader)


def encode_sticky(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """The user data of the eager sticky assignor, which gives up its partitions before it joins."""
    return _partitions(owned) + _int32.pack(generation)


def decode_sticky(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    """(owned, generation); what cannot be read is nothing."""
    try:
        reader = Reader(memoryview(data))
        owned = read_partitions(reader)
        return owned, reader.int32() if reader.remaining >= 4 else NO_GENERATION
    except MalformedFrame:
        return (), NO_GENERATION


def read_partitions(reader: Reader) -> tuple[TopicPartition, ...]:
    """An array of topics with their partitions."""
    found: list[TopicPartition] = []
    for _ in range(max(0, reader.count(False, 6))):
        topic = reader.string(False)
        found += [(topic, number) for number in reader.array(False, 4, reader.int32)]
    return tuple(found)


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    topics = entries_by_topic(sorted(partitions))
    chunks = [_int32.pack(len(topics))]
    for topic in topics:
        chunks += (encode_string(topic["name"], False), _int32.pack(len(topic["partitions"])))
        chunks += [_int32.pack(number) for number in topic["partitions"]]
    return b"".join(chunks)


def _sized(data: bytes) -> bytes:
    return _int32.pack(len(data)) + data
