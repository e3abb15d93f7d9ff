"""Produce requests of many partitions, which are split, and whose answers are merged, in steps."""

from collections.abc import Iterable

from ...runtime.steps import StepCounter, Steps
from ..primitives import REQUEST_ELEMENTS_MAX, Buffer, Reader, encode_count
from .leaders import NodeEndpoint
from .produce import ProducePartition, ProduceRequest, ProduceTopic
from .produce_answer import (
    FLEXIBLE_FROM,
    TOPIC_IDS_FROM,
    ProducedTopic,
    ProduceResponse,
    encode_answers,
    encode_closing,
    encode_topic_start,
)

PARTITIONS_PER_STEP = 50
PARTITIONS_MAX = 100  # the limit of one part; about 4 ms if all are appended


def decode_parts_steps(body: memoryview, version: int) -> Steps[list[ProduceRequest]]:
    """Split a request into several of few partitions each, in order, or raise MalformedFrame."""
    reader = Reader(body, elements_max=REQUEST_ELEMENTS_MAX)
    flexible = version >= FLEXIBLE_FROM
    opening = reader.nullable_string(flexible), reader.int16(), reader.int32()
    parts = [ProduceRequest(*opening, [])]
    room = PARTITIONS_MAX
    counter = StepCounter(PARTITIONS_PER_STEP)
    for _ in range(reader.length(flexible, 3)):
        name = topic_id = None
        if version >= TOPIC_IDS_FROM:
            topic_id = reader.uuid()
        else:
            name = reader.string(flexible)
        topic: ProduceTopic | None = None
        for number in range(max(1, count := reader.length(flexible, 5))):
            if topic is None or room == 0:
                if room == 0:
                    parts.append(ProduceRequest(*opening, []))
                    room = PARTITIONS_MAX
                topic = ProduceTopic(name, topic_id, [])
                parts[-1].topics.append(topic)
            if number < count:
                index, records = reader.int32(), reader.nullable_bytes(flexible)
                topic.partitions.append(ProducePartition(index, records))
                if flexible:
                    reader.tags()
            room -= 1
            if counter.ends_step():
                yield
        if flexible:
            reader.tags()
    if flexible:
        reader.tags()
    return parts


def peek_acks(body: memoryview, version: int) -> int:
    """Return the request's acks, or raise MalformedFrame."""
    reader = Reader(body)
    reader.nullable_string(version >= FLEXIBLE_FROM)
    return reader.int16()


def encode_parts_steps(
    responses: Iterable[ProduceResponse], version: int, throttle_ms: int = 0
) -> Steps[list[Buffer]]:
    """Encode one response from the responses to the parts of a request."""
    topics: list[ProducedTopic] = []
    endpoints: dict[NodeEndpoint, None] = {}
    counter = StepCounter()
    for response in responses:
        endpoints |= dict.fromkeys(response.node_endpoints)
        for topic in response.topics:
            last = topics[-1] if topics else None
            if last and (last.name, last.topic_id) == (topic.name, topic.topic_id):
                last.partitions += topic.partitions
            else:
                topics.append(topic)
            if counter.ends_step():
                yield
    flexible = version >= FLEXIBLE_FROM
    chunks = [encode_count(len(topics), flexible)]
    pieces: list[bytes] = []
    for topic in topics:
        chunks.append(encode_topic_start(topic, version))
        for start in range(0, len(topic.partitions), PARTITIONS_MAX):
            encode_answers(topic.partitions[start : start + PARTITIONS_MAX], version, chunks)
            if len(chunks) >= PARTITIONS_MAX:
                pieces.append(b"".join(chunks))
                chunks.clear()
                yield
        if flexible:
            chunks.append(b"\0")
    chunks.append(encode_closing(ProduceResponse([], throttle_ms, list(endpoints)), version))
    return [b"".join((*pieces, *chunks))]
