"""The Produce request of a producer, with its version, its contents and its answer."""

from collections.abc import Sequence
from typing import Any

from ...wire.errors import ErrorCode, KafkaError, UnsupportedVersion, error_for
from ...wire.identifiers import Identity, TopicPartition
from ...wire.messages import produce
from ...wire.record_batch import increment_sequence
from ...wire.records import decode_batch
from ..cluster_view import ClusterView
from ..security.permissions import error_about
from ..settings import Settings
from .accumulator import ProducerBatch

PRODUCE, INIT_PRODUCER_ID = 0, 22
BY_NAME_NEWEST = 12
V1_NEWEST = 11  # from 12 on a batch adds its partition to the transaction itself (KIP-890)
PLAIN_ID_NEWEST = 5
COMPRESSION = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


async def produce_batches(
    view: ClusterView,
    leader: int,
    batches: Sequence[ProducerBatch],
    settings: Settings,
    *,
    is_v2: bool,
) -> dict[TopicPartition, produce.ProducedPartition]:
    """Send encoded batches to a leader (-1 if unknown) and return its answers.

    Raises KafkaError without an answer. New leaders in the answer go into the view.
    """
    if leader < 0:
        await view.refresh({b.topic for b in batches})
        raise error_for(ErrorCode.LEADER_NOT_AVAILABLE)
    connection = await view.broker(leader)
    is_v1 = settings.transactional_id is not None and not is_v2
    version = connection.version_for(PRODUCE, newest=V1_NEWEST if is_v1 else BY_NAME_NEWEST)
    if is_v2 and version < BY_NAME_NEWEST:
        raise UnsupportedVersion(f"node {leader} serves no Produce 12, which transactions V2 need")
    topics: dict[str, produce.ProduceTopic] = {}
    for b in batches:
        topic = topics.setdefault(b.topic, produce.ProduceTopic(b.topic, None, []))
        topic.partitions.append(produce.ProducePartition(b.partition, b.encoded))
    limit_ms = settings.request_timeout_ms
    request = produce.ProduceRequest(
        settings.transactional_id, settings.acks, limit_ms, list(topics.values())
    )
    body = produce.encode_request(request, version)
    if settings.acks == 0:
        await connection.post(PRODUCE, version, body)
        return {(b.topic, b.partition): produce.ProducedPartition(b.partition) for b in batches}
    answer = await connection.send(PRODUCE, version, body, timeout_ms=limit_ms)
    response = produce.decode_response(answer, version)
    answers = {(str(t.name), p.index): p for t in response.topics for p in t.partitions}
    for (name, index), p in answers.items():  # KIP-951: NOT_LEADER_OR_FOLLOWER names the leader
        view.learn_leader(name, index, p.current_leader, response.node_endpoints)
    return answers


def halves(batch: ProducerBatch) -> list[ProducerBatch]:
    """Split a batch that was refused as too large into two batches, which keep its sequence
    numbers.
    """
    assert batch.encoded is not None
    records = decode_batch(batch.encoded)
    middle = len(records) // 2
    parts: list[tuple[int, ProducerBatch]] = []
    for start, some in ((0, records[:middle]), (middle, records[middle:])):
        part = ProducerBatch(batch.topic, batch.partition, batch.created_ms, batch.deadline_ms)
        part.is_doubtful = batch.is_doubtful
        for r in some:
            part.builder.append(r.timestamp, r.key, r.value, r.headers)
        if batch.base_sequence >= 0:
            part.producer_id = batch.producer_id
            part.base_sequence = increment_sequence(batch.base_sequence, start)
        parts.append((start, part))
    batch.outcome.split(tuple((start, part.outcome) for start, part in parts))
    return [part for _, part in parts]


async def fresh_producer_id(view: ClusterView, *, timeout_ms: int) -> Identity:
    """Call InitProducerId without a transactional id on any broker. Return (id, epoch)."""
    request = {"transactional_id": None, "transaction_timeout": 60_000}
    request |= {"producer_id": -1, "producer_epoch": -1}

    async def attempt() -> Any:
        connection = await view.any_broker()
        answer = await connection.call(INIT_PRODUCER_ID, request, newest=PLAIN_ID_NEWEST)
        if answer.error_code:
            raise error_about(int(answer.error_code), "", "IdempotentWrite")
        return answer

    answer = await view.retrying(attempt, timeout_ms=timeout_ms)
    return int(answer.producer_id), int(answer.producer_epoch)


def problem_of(
    batch: ProducerBatch, code: int, answer: produce.ProducedPartition | None, settings: Settings
) -> KafkaError:
    """Return the error of a batch, with the broker's message about it or a bad record (KIP-467)."""
    is_of_id = code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    name = settings.transactional_id if is_of_id else batch.topic
    words = None
    if answer is not None:
        named = [f"record {index}: {words}" for index, words in answer.record_errors if words]
        words = answer.error_message or (named[0] if named else None)
    return error_about(code, name, "Write", words, of_cluster="IdempotentWrite")
