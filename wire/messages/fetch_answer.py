"""The answer to Fetch (API 1), versions 4 to 18. Import it from `fetch`.

An empty record set is written as empty, never as null, because librdkafka treats null as a
malformed answer.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ...runtime.steps import Steps
from ..primitives import (
    Buffer,
    Reader,
    encode_count,
    encode_string,
    encode_tags,
    encode_unsigned_varint,
)
from .leaders import (
    NO_LEADER,
    NodeEndpoint,
    decode_endpoints,
    decode_leader,
    encode_endpoints,
    encode_leader,
)

FLEXIBLE_FROM, TOPIC_IDS_FROM, ENDPOINTS_FROM = 12, 13, 16
NO_DIVERGENCE = (-1, -1)
PARTITIONS_PER_STEP = 100
_answer_v4 = struct.Struct(">ihqq")
_answer_v5 = struct.Struct(">ihqqq")
_plain_answer_v12 = struct.Struct(">ihqqqBi")  # aborted transactions are null or empty
_aborted = struct.Struct(">qq")
_int32 = struct.Struct(">i")
_epoch_end = struct.Struct(">iqb")
_opening_v7 = struct.Struct(">ihi")


@dataclass(slots=True)
class FetchedPartition:
    """The response for one partition.

    aborted_transactions: pairs (producer id, first offset) for read_committed, None otherwise.
    diverging_epoch: the pair (epoch, end offset). current_leader: the pair (node id, leader epoch).
    """

    index: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Buffer = b""
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    diverging_epoch: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None
    preferred_read_replica: int = -1


@dataclass(slots=True)
class FetchedTopic:
    """The answers for a topic, by name or, from version 13 on, by id."""

    name: str | None
    topic_id: bytes | None
    partitions: list[FetchedPartition]


@dataclass(slots=True)
class FetchResponse:
    """A Fetch response.

    With session_id 0 there is no session, and the client's next fetch must be full.
    """

    topics: list[FetchedTopic]
    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


def encode_response(response: FetchResponse, version: int) -> list[Buffer]:
    """Return the parts of a response body, without copying the records.

    All partitions are encoded in one step, so there must be few.
    """
    pieces: list[Buffer] = []
    head = _opening(response, version)
    for topic in response.topics:
        head += _topic_head(topic, version)
        head = _encode_answers(topic.partitions, version, pieces, head)
        if version >= FLEXIBLE_FROM:
            head += b"\0"
    head += _closing(response, version)
    if head:
        pieces.append(head)
    return pieces


def encode_response_steps(response: FetchResponse, version: int) -> Steps[list[Buffer]]:
    """Return the parts of a response body in steps, for any number of partitions.

    The records are not copied.
    """
    pieces: list[Buffer] = []
    end = b"\0" if version >= FLEXIBLE_FROM else b""
    head = _opening(response, version)
    encoded = 0
    for topic in response.topics:
        head += _topic_head(topic, version)
        for start in range(0, len(topic.partitions), PARTITIONS_PER_STEP):
            some = topic.partitions[start : start + PARTITIONS_PER_STEP]
            head = _encode_answers(some, version, pieces, head)
            encoded += len(some)
            if encoded >= PARTITIONS_PER_STEP:
                encoded = 0
                pieces.append(head)  # growing a bytes object would copy it each time
                head = b""
                yield
        head += end
    pieces.append(head + _closing(response, version))
    return pieces


def _opening(response: FetchResponse, version: int) -> bytes:
    if version >= 7:
        head = _opening_v7.pack(response.throttle_time_ms, response.error_code, response.session_id)
    else:
        head = _int32.pack(response.throttle_time_ms)
    return head + encode_count(len(response.topics), version >= FLEXIBLE_FROM)


def _topic_head(topic: FetchedTopic, version: int) -> bytes:
    count = encode_count(len(topic.partitions), version >= FLEXIBLE_FROM)
    return encode_topic(topic.name, topic.topic_id, version) + count


def _encode_answers(
    answers: Sequence[FetchedPartition], version: int, pieces: list[Buffer], head: bytes
) -> bytes:
    """Append the encoded answers for some partitions, with their records, to `pieces`.

    `head` has the bytes before the first answer. Returns the bytes after the last records, which
    the caller must put before the next piece.
    """
    flexible = version >= FLEXIBLE_FROM
    encode_answer = _encode_flexible if flexible else _encode_classic
    for answer in answers:
        head += encode_answer(answer, version)
        if answer.records:
            pieces += (head, answer.records)
            head = b""
        if flexible:
            head += _answer_tags(answer)
    return head


def _closing(response: FetchResponse, version: int) -> bytes:
    if version < FLEXIBLE_FROM:
        return b""
    if response.node_endpoints and version >= ENDPOINTS_FROM:
        return encode_tags([(0, encode_endpoints(response.node_endpoints))])
    return b"\0"


def _encode_flexible(answer: FetchedPartition, version: int) -> bytes:
    aborted = answer.aborted_transactions
    start = (
        answer.index,
        answer.error_code,
        answer.high_watermark,
        answer.last_stable_offset,
        answer.log_start_offset,
    )
    size = encode_unsigned_varint(len(answer.records) + 1)
    if not aborted:
        none_or_empty = 0 if aborted is None else 1
        return _plain_answer_v12.pack(*start, none_or_empty, answer.preferred_read_replica) + size
    return b"".join(
        (
            _answer_v5.pack(*start),
            encode_unsigned_varint(len(aborted) + 1),
            *[_aborted.pack(*transaction) + b"\0" for transaction in aborted],
            _int32.pack(answer.preferred_read_replica),
            size,
        )
    )


def _encode_classic(answer: FetchedPartition, version: int) -> bytes:
    aborted = answer.aborted_transactions
    start = (answer.index, answer.error_code, answer.high_watermark, answer.last_stable_offset)
    chunks = [
        _answer_v5.pack(*start, answer.log_start_offset)
        if version >= 5
        else _answer_v4.pack(*start),
        _int32.pack(-1 if aborted is None else len(aborted)),
    ]
    chunks += [_aborted.pack(*transaction) for transaction in aborted or ()]
    if version >= 11:
        chunks.append(_int32.pack(answer.preferred_read_replica))
    chunks.append(_int32.pack(len(answer.records)))
    return b"".join(chunks)


def _answer_tags(answer: FetchedPartition) -> bytes:
    diverging, leader = answer.diverging_epoch, answer.current_leader
    if diverging is None and leader is None:
        return b"\0"
    tags: list[tuple[int, bytes]] = []
    if diverging is not None and diverging != NO_DIVERGENCE:
        tags.append((0, _epoch_end.pack(*diverging, 0)))
    if leader is not None and leader != NO_LEADER:
        tags.append((1, encode_leader(leader)))
    return encode_tags(tags)


def decode_response(body: memoryview, version: int) -> FetchResponse:
    """Decode the answer, with records as views of `body`, or raise MalformedFrame."""
    reader = Reader(body)
    flexible = version >= FLEXIBLE_FROM
    response = FetchResponse([], reader.int32())
    if version >= 7:
        response.error_code, response.session_id = reader.int16(), reader.int32()

    def aborted() -> tuple[int, int]:
        entry = (reader.int64(), reader.int64())
        if flexible:
            reader.tags()
        return entry

    def partition() -> FetchedPartition:
        answer = FetchedPartition(reader.int32(), reader.int16(), reader.int64(), reader.int64())
        if version >= 5:
            answer.log_start_offset = reader.int64()
        count = reader.count(flexible, 16)
        if count >= 0:
            answer.aborted_transactions = [aborted() for _ in range(count)]
        if version >= 11:
            answer.preferred_read_replica = reader.int32()
        answer.records = reader.nullable_bytes(flexible) or b""
        if flexible:
            tags = reader.tags()
            if 0 in tags:
                diverging = Reader(tags[0])
                answer.diverging_epoch = (diverging.int32(), diverging.int64())
            if 1 in tags:
                answer.current_leader = decode_leader(tags[1])
        return answer

    def topic() -> FetchedTopic:
        name, topic_id = read_topic(reader, version)
        partitions = reader.array(flexible, 22, partition)
        if flexible:
            reader.tags()
        return FetchedTopic(name, topic_id, partitions)

    response.topics = reader.array(flexible, 3, topic)
    if flexible:
        tags = reader.tags()
        if 0 in tags and version >= ENDPOINTS_FROM:
            response.node_endpoints = decode_endpoints(tags[0])
    reader.finish()
    return response


def read_topic(reader: Reader, version: int) -> tuple[str | None, bytes | None]:
    """Read a topic's identifier as (name, None) or, from version 13 on, (None, id)."""
    if version >= TOPIC_IDS_FROM:
        return None, reader.uuid()
    return reader.string(version >= FLEXIBLE_FROM), None


def encode_topic(name: str | None, topic_id: bytes | None, version: int) -> bytes:
    """Encode a topic's name or, from version 13 on, its id."""
    if version >= TOPIC_IDS_FROM:
        assert topic_id is not None
        return topic_id
    return encode_string(name or "", version >= FLEXIBLE_FROM)
