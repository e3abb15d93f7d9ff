"""Fetch (API 1), versions 4 to 18, without copying records.

Versions and what each adds:

    4  isolation level and aborted transactions (KIP-98)
    5  log start offset
    7  fetch sessions (KIP-227)
    9  current leader epoch (KIP-320)
    10 zstd
    11 rack and preferred read replica (KIP-392)
    12 flexible format, last fetched epoch and diverging epoch (KIP-595)
    13 topic ids (KIP-516)
    15 replica state as a tagged field (KIP-903)
    16 endpoints of leaders (KIP-951)
    17 directory id (KIP-853)
    18 the follower's high watermark (KIP-1166)
"""

import struct
from dataclasses import dataclass, field

from ...runtime.steps import StepCounter, Steps
from ..primitives import (
    REQUEST_ELEMENTS_MAX,
    Buffer,
    MalformedFrame,
    Reader,
    encode_count,
    encode_string,
    encode_tags,
)
from . import control
from .fetch_answer import (
    FLEXIBLE_FROM,
    FetchedPartition,
    FetchedTopic,
    FetchResponse,
    decode_response,
    encode_response,
    encode_response_steps,
    encode_topic,
    read_topic,
)

# Names of the answer.
__all__ = [
    "FetchResponse",
    "FetchedPartition",
    "FetchedTopic",
    "decode_response",
    "encode_response",
    "encode_response_steps",
]

FETCH = 1
OLDEST, NEWEST = 4, 18
NO_REPLICA = -1
_head = struct.Struct(">iiib")
_replica = struct.Struct(">i")
_session = struct.Struct(">ii")
_partition_v4 = struct.Struct(">iqi")
_partition_v5 = struct.Struct(">iqqi")
_partition_v9 = struct.Struct(">iiqqi")
_partition_v12 = struct.Struct(">iiqiqiB")  # with the number of tagged fields
_int32 = struct.Struct(">i")
_replica_state = struct.Struct(">iqb")


@dataclass(slots=True)
class FetchPartition:
    """A partition to fetch from an offset. Epochs are -1 if the version or client lacks them."""

    index: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


@dataclass(slots=True)
class FetchTopic:
    """A topic to fetch, by name or, from version 13 on, by id."""

    name: str | None
    topic_id: bytes | None
    partitions: list[FetchPartition]


@dataclass(slots=True)
class ForgottenTopic:
    """Partitions to be removed from a fetch session."""

    name: str | None
    topic_id: bytes | None
    partitions: list[int]


@dataclass(slots=True)
class FetchRequest:
    """A Fetch request.

    replica_id is -1 for consumers. isolation_level: 0 read_uncommitted, 1 read_committed.
    """

    max_wait_ms: int
    min_bytes: int
    topics: list[FetchTopic]
    max_bytes: int = 0x7FFFFFFF
    isolation_level: int = 0
    replica_id: int = NO_REPLICA
    session_id: int = 0
    session_epoch: int = -1
    forgotten_topics: list[ForgottenTopic] = field(default_factory=list[ForgottenTopic])
    rack_id: str = ""


def decode_request(body: memoryview, version: int) -> FetchRequest:
    """Decode a request, or raise MalformedFrame.

    Bytes after the request are ignored. A partition that is repeated is fetched once, at its first
    place and with its last values, as in Kafka. Otherwise a megabyte of repetitions would cause
    tens of thousands of reads.
    """
    reader = Reader(body, elements_max=REQUEST_ELEMENTS_MAX)
    flexible = version >= FLEXIBLE_FROM
    request = FetchRequest(0, 0, [])
    try:
        if version < 15:
            request.replica_id = reader.int32()
        head = _head.unpack_from(body, reader.position)
        request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level = head
        reader.position += _head.size
        if version >= 7:
            session = _session.unpack_from(body, reader.position)
            request.session_id, request.session_epoch = session
            reader.position += _session.size
    except struct.error:
        raise MalformedFrame("the message is cut short") from None
    read_partitions = _read_flexible if flexible else _read_classic

    def topic() -> FetchTopic:
        name, topic_id = read_topic(reader, version)
        partitions = read_partitions(reader, version)
        if flexible:
            reader.tags()
        return FetchTopic(name, topic_id, partitions)

    def forgotten() -> ForgottenTopic:
        name, topic_id = read_topic(reader, version)
        partitions = reader.array(flexible, 4, reader.int32)
        if flexible:
            reader.tags()
        return ForgottenTopic(name, topic_id, partitions)

    request.topics = reader.array(flexible, 3, topic)
    if len(request.topics) > 1:
        request.topics = _topics_once(request.topics)
    if version >= 7:
        request.forgotten_topics = reader.array(flexible, 3, forgotten)
    if version >= 11:
        request.rack_id = reader.string(flexible)
    if flexible:
        tags = reader.tags()
        if version >= 15 and 1 in tags:
            request.replica_id = Reader(tags[1]).int32()
    return request


def decode_request_steps(body: memoryview, version: int) -> Steps[FetchRequest]:
    """Decode a large request in steps, like `decode_request`, but leave `rack_id` empty."""
    message = yield from control.decode_request_steps(FETCH, version, body)
    topics: dict[bytes | str | None, FetchTopic] = {}
    wanted: dict[tuple[bytes | str | None, int], FetchPartition] = {}
    counter = StepCounter()
    for topic in message.topics:
        name, topic_id = getattr(topic, "topic", None), getattr(topic, "topic_id", None)
        key = topic_id or name
        topics.setdefault(key, FetchTopic(name, topic_id, []))
        if counter.ends_step():
            yield
        for each in topic.partitions:
            wanted[key, each.partition] = FetchPartition(
                each.partition,
                each.fetch_offset,
                each.partition_max_bytes,
                getattr(each, "current_leader_epoch", -1),
                getattr(each, "last_fetched_epoch", -1),
                getattr(each, "log_start_offset", -1),
            )
            if counter.ends_step():
                yield
    for (key, _), partition in wanted.items():
        topics[key].partitions.append(partition)
        if counter.ends_step():
            yield
    forgotten: list[ForgottenTopic] = []
    for topic in getattr(message, "forgotten_topics_data", ()):
        name, topic_id = getattr(topic, "topic", None), getattr(topic, "topic_id", None)
        forgotten.append(ForgottenTopic(name, topic_id, list(topic.partitions)))
        if counter.ends_step():
            yield
    state = getattr(message, "replica_state", None)
    return FetchRequest(
        message.max_wait,
        message.min_bytes,
        list(topics.values()),
        message.max_bytes,
        message.isolation_level,
        message.replica_id if state is None else state.replica_id,
        getattr(message, "session_id", 0),
        getattr(message, "session_epoch", -1),
        forgotten,
    )


def _topics_once(topics: list[FetchTopic]) -> list[FetchTopic]:
    known: dict[bytes | str | None, FetchTopic] = {}
    for topic in topics:
        first = known.setdefault(topic.topic_id or topic.name, topic)
        if first is not topic:
            first.partitions += topic.partitions
    if len(known) < len(topics):
        for topic in known.values():
            topic.partitions = _once(topic.partitions)
    return list(known.values())


def _read_flexible(reader: Reader, version: int) -> list[FetchPartition]:
    """Read the partitions of a topic in version 12 or later, each once.

    Partitions without tagged fields are read with a single call.
    """
    start = reader.position
    count = reader.length(True, _partition_v12.size)
    rows = list(_partition_v12.iter_unpack(reader.take(count * _partition_v12.size)))
    if any(row[-1] for row in rows):
        reader.position = start
        return _once(reader.array(True, _partition_v12.size, lambda: _read_tagged(reader)))
    if count > 1:  # without duplicates, before objects are created
        rows = {row[0]: row for row in rows}.values()
    return [
        FetchPartition(index, offset, max_bytes, leader_epoch, fetched_epoch, log_start)
        for index, leader_epoch, offset, fetched_epoch, log_start, max_bytes, _ in rows
    ]


def _once(partitions: list[FetchPartition]) -> list[FetchPartition]:
    return list({partition.index: partition for partition in partitions}.values())


def _read_tagged(reader: Reader) -> FetchPartition:
    row = _partition_v12.unpack(reader.take(_partition_v12.size))
    index, leader_epoch, offset, fetched_epoch, log_start, max_bytes, _ = row
    reader.position -= 1
    reader.tags()
    return FetchPartition(index, offset, max_bytes, leader_epoch, fetched_epoch, log_start)


def _classic_layout(version: int) -> struct.Struct:
    return _partition_v9 if version >= 9 else _partition_v5 if version >= 5 else _partition_v4


def partition_row_bytes(version: int) -> int:
    """Return the size in bytes of a partition without tagged fields in a Fetch request."""
    return (_partition_v12 if version >= FLEXIBLE_FROM else _classic_layout(version)).size


def _read_classic(reader: Reader, version: int) -> list[FetchPartition]:
    layout = _classic_layout(version)
    count = reader.length(False, layout.size)
    data = reader.take(count * layout.size)
    rows = {row[0]: row for row in layout.iter_unpack(data)}.values()
    if version >= 9:
        return [
            FetchPartition(index, offset, max_bytes, leader_epoch, -1, log_start)
            for index, leader_epoch, offset, log_start, max_bytes in rows
        ]
    if version >= 5:
        return [
            FetchPartition(index, offset, max_bytes, -1, -1, log_start)
            for index, offset, log_start, max_bytes in rows
        ]
    return [FetchPartition(index, offset, max_bytes) for index, offset, max_bytes in rows]


def encode_request(request: FetchRequest, version: int) -> list[Buffer]:
    """Encode the body of a Fetch request as a single buffer."""
    flexible = version >= FLEXIBLE_FROM
    end = b"\0" if flexible else b""
    chunks: list[bytes] = []
    if version < 15:
        chunks.append(_replica.pack(request.replica_id))
    chunks.append(
        _head.pack(
            request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level
        )
    )
    if version >= 7:
        chunks.append(_session.pack(request.session_id, request.session_epoch))
    chunks.append(encode_count(len(request.topics), flexible))
    for topic in request.topics:
        chunks += (
            encode_topic(topic.name, topic.topic_id, version),
            encode_count(len(topic.partitions), flexible),
        )
        chunks += [_encode_partition(p, version) for p in topic.partitions]
        chunks.append(end)
    if version >= 7:
        chunks.append(encode_count(len(request.forgotten_topics), flexible))
        for gone in request.forgotten_topics:
            chunks += (
                encode_topic(gone.name, gone.topic_id, version),
                encode_count(len(gone.partitions), flexible),
            )
            chunks += [_int32.pack(index) for index in gone.partitions]
            chunks.append(end)
    if version >= 11:
        chunks.append(encode_string(request.rack_id, flexible))
    if flexible:
        if version >= 15 and request.replica_id != NO_REPLICA:
            chunks.append(encode_tags([(1, _replica_state.pack(request.replica_id, -1, 0))]))
        else:
            chunks.append(b"\0")
    return [b"".join(chunks)]


def _encode_partition(partition: FetchPartition, version: int) -> bytes:
    p = partition
    if version >= FLEXIBLE_FROM:
        return _partition_v12.pack(
            p.index,
            p.current_leader_epoch,
            p.fetch_offset,
            p.last_fetched_epoch,
            p.log_start_offset,
            p.max_bytes,
            0,
        )
    if version >= 9:
        return _partition_v9.pack(
            p.index, p.current_leader_epoch, p.fetch_offset, p.log_start_offset, p.max_bytes
        )
    if version >= 5:
        return _partition_v5.pack(p.index, p.fetch_offset, p.log_start_offset, p.max_bytes)
    return _partition_v4.pack(p.index, p.fetch_offset, p.max_bytes)
