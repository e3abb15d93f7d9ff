"""The answer to Produce (API 0), versions 3 to 13. Import it from `produce`."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ..primitives import Buffer, Reader, encode_count, encode_string, encode_tags
from .leaders import (
    NO_LEADER,
    NodeEndpoint,
    decode_endpoints,
    decode_leader,
    encode_endpoints,
    encode_leader,
)

FLEXIBLE_FROM, TOPIC_IDS_FROM, LEADER_TAGS_FROM = 9, 13, 10
_int32 = struct.Struct(">i")
_answer_v3 = struct.Struct(">ihqq")
_answer_v5 = struct.Struct(">ihqqq")
_plain_answer_v9 = struct.Struct(">ihqqqBBB")  # no record errors, no message, no tagged fields


# The number of partitions, one such answer, the end of the topic, the throttle time, the end.
_one_plain_answer_v9 = struct.Struct(">BihqqqBBBBiB")


@dataclass(slots=True)
class ProducedPartition:
    """The response for one partition.

    record_errors: pairs (index in the batch, message). current_leader: the pair (node id, leader
    epoch), which is sent with NOT_LEADER_OR_FOLLOWER.
    """

    index: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None


@dataclass(slots=True)
class ProducedTopic:
    """The answers for a topic, by name or, from version 13 on, by id."""

    name: str | None
    topic_id: bytes | None
    partitions: list[ProducedPartition]


@dataclass(slots=True)
class ProduceResponse:
    """A Produce response. `node_endpoints` are (node id, host, port, rack) of the named leaders."""

    topics: list[ProducedTopic]
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


def encode_response(response: ProduceResponse, version: int) -> list[Buffer]:
    """Encode the body as a single buffer, since Produce answers are small."""
    if version >= FLEXIBLE_FROM and len(response.topics) == 1:
        plain = _encode_one_plain(response, version)
        if plain is not None:
            return [plain]
    flexible = version >= FLEXIBLE_FROM
    chunks = [encode_count(len(response.topics), flexible)]
    for topic in response.topics:
        chunks.append(encode_topic_start(topic, version))
        encode_answers(topic.partitions, version, chunks)
        if flexible:
            chunks.append(b"\0")
    chunks.append(encode_closing(response, version))
    return [b"".join(chunks)]


def _encode_one_plain(response: ProduceResponse, version: int) -> bytes | None:
    """Encode the usual response, one partition without an error, in one step.

    Returns None for any other response.
    """
    topic = response.topics[0]
    if len(topic.partitions) != 1 or response.node_endpoints:
        return None
    answer = topic.partitions[0]
    if (
        answer.error_code
        or answer.current_leader is not None
        or answer.error_message is not None
        or answer.record_errors
    ):
        return None
    offsets = answer.base_offset, answer.log_append_time_ms, answer.log_start_offset
    throttle_ms = response.throttle_time_ms
    closing = _one_plain_answer_v9.pack(2, answer.index, 0, *offsets, 1, 0, 0, 0, throttle_ms, 0)
    if version >= TOPIC_IDS_FROM:
        assert topic.topic_id is not None
        return b"\x02" + topic.topic_id + closing
    name = (topic.name or "").encode()
    if len(name) >= 0x7F:
        return None
    return b"%c%c%b%b" % (2, len(name) + 1, name, closing)


def encode_topic_start(topic: ProducedTopic, version: int) -> bytes:
    """Encode a topic's name or id, and the number of its partitions."""
    flexible = version >= FLEXIBLE_FROM
    count = encode_count(len(topic.partitions), flexible)
    if version >= TOPIC_IDS_FROM:
        assert topic.topic_id is not None
        return topic.topic_id + count
    return encode_string(topic.name or "", flexible) + count


def encode_answers(answers: Sequence[ProducedPartition], version: int, chunks: list[bytes]) -> None:
    """Append to `chunks` the encoded answers for some partitions of a topic."""
    flexible = version >= FLEXIBLE_FROM
    for answer in answers:
        if (
            flexible
            and answer.error_code == 0
            and answer.current_leader is None
            and answer.error_message is None
            and not answer.record_errors
        ):
            chunks.append(
                _plain_answer_v9.pack(
                    answer.index,
                    0,
                    answer.base_offset,
                    answer.log_append_time_ms,
                    answer.log_start_offset,
                    1,
                    0,
                    0,
                )
            )
        else:
            _encode_answer(answer, version, flexible, chunks)


def encode_closing(response: ProduceResponse, version: int) -> bytes:
    """Encode the fields that follow the topics: throttle time and node endpoints."""
    throttle = _int32.pack(response.throttle_time_ms)
    if version < FLEXIBLE_FROM:
        return throttle
    endpoints = response.node_endpoints
    if endpoints and version >= LEADER_TAGS_FROM:
        return throttle + encode_tags([(0, encode_endpoints(endpoints))])
    return throttle + b"\0"


def _encode_answer(
    answer: ProducedPartition, version: int, flexible: bool, chunks: list[bytes]
) -> None:
    if version < 5:
        chunks.append(
            _answer_v3.pack(
                answer.index, answer.error_code, answer.base_offset, answer.log_append_time_ms
            )
        )
        return
    chunks.append(
        _answer_v5.pack(
            answer.index,
            answer.error_code,
            answer.base_offset,
            answer.log_append_time_ms,
            answer.log_start_offset,
        )
    )
    if version < 8:
        return
    chunks.append(encode_count(len(answer.record_errors), flexible))
    for index, message in answer.record_errors:
        chunks += (_int32.pack(index), encode_string(message, flexible))
        if flexible:
            chunks.append(b"\0")
    chunks.append(encode_string(answer.error_message, flexible))
    if flexible:
        leader = answer.current_leader
        if leader is not None and leader != NO_LEADER and version >= LEADER_TAGS_FROM:
            chunks.append(encode_tags([(0, encode_leader(leader))]))
        else:
            chunks.append(b"\0")


def decode_response(body: memoryview, version: int) -> ProduceResponse:
    """Decode the answer, or raise MalformedFrame."""
    reader = Reader(body)
    flexible = version >= FLEXIBLE_FROM

    def record_error() -> tuple[int, str | None]:
        error = (reader.int32(), reader.nullable_string(flexible))
        if flexible:
            reader.tags()
        return error

    def partition() -> ProducedPartition:
        answer = ProducedPartition(reader.int32(), reader.int16(), reader.int64(), reader.int64())
        if version >= 5:
            answer.log_start_offset = reader.int64()
        if version >= 8:
            answer.record_errors = reader.array(flexible, 5, record_error)
            answer.error_message = reader.nullable_string(flexible)
        if flexible:
            tags = reader.tags()
            if 0 in tags and version >= LEADER_TAGS_FROM:
                answer.current_leader = decode_leader(tags[0])
        return answer

    def topic() -> ProducedTopic:
        if version >= TOPIC_IDS_FROM:
            name, topic_id = None, reader.uuid()
        else:
            name, topic_id = reader.string(flexible), None
        answers = reader.array(flexible, 22, partition)
        if flexible:
            reader.tags()
        return ProducedTopic(name, topic_id, answers)

    response = ProduceResponse(reader.array(flexible, 3, topic), reader.int32())
    if flexible:
        tags = reader.tags()
        if 0 in tags and version >= LEADER_TAGS_FROM:
            response.node_endpoints = decode_endpoints(tags[0])
    reader.finish()
    return response
