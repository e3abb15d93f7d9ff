"""Produce (API 0), versions 3-12; advertised from 0 (KAFKA-18659), a real v0-2 closes.

KIP-98 (idempotence, transactions) · KIP-467 (record errors) · KIP-951 (the new leader in the
answer). Version 13 names topics by id.

acks=0 has no answer: an error closes the connection, so that the client looks again. acks=all is
answered when the high watermark has passed the batch; a duplicate waits for the same.
"""

from functools import partial

from ...replication.purgatory import DelayedProduce
from ...wire.errors import (
    ErrorCode,
    InvalidRecord,
    InvalidRequiredAcks,
    KafkaError,
    UnsupportedCompressionType,
)
from ...wire.framing import RequestHeader
from ...wire.messages import produce
from ...wire.messages.produce import (
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from ...wire.record_batch import validate_client_batch
from ..dispatch import Api, Buffer, PendingAnswer, RequestContext
from ..hosted_partition import HostedPartition
from ..replica_manager import ReplicaManager
from .leader_hints import LeaderHints

PRODUCE = 0
ZSTD, ZSTD_FROM = 4, 7
_WAIT_FOR_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def handle(
    context: RequestContext, header: RequestHeader, body: memoryview
) -> list[Buffer] | PendingAnswer | None:
    """Append every batch, then answer at once or when the replicas have them."""
    version = header.api_version
    request = produce.decode_request(body, version)
    if request.acks not in (-1, 0, 1):
        return _refuse(context, request, version, InvalidRequiredAcks())
    replicas = context.broker.replicas
    hints = LeaderHints(context.broker.state)
    waiting: dict[HostedPartition, tuple[ProducedPartition, int]] = {}
    topics: list[ProducedTopic] = []
    failed = False
    for topic in request.topics:
        name = topic.name if topic.topic_id is None else _name_of(context, topic.topic_id)
        answers: list[ProducedPartition] = []
        for wanted in topic.partitions:
            answer = ProducedPartition(wanted.index)
            answers.append(answer)
            try:
                partition = _partition(replicas, topic, name, wanted.index)
                if wanted.records is None:
                    raise InvalidRecord("a produce request carries one batch for each partition")
                batch = validate_client_batch(
                    wanted.records, max_message_bytes=partition.log.config.max_message_bytes
                )
                if batch.compression == ZSTD and version < ZSTD_FROM:
                    raise UnsupportedCompressionType("zstd came with version 7 (KIP-110)")
                info = replicas.append(partition, wanted.records, batch, request.acks)  # type: ignore[arg-type]
            except KafkaError as error:
                failed = True
                _fail(answer, error, name, hints)
                continue
            answer.base_offset = info.first_offset
            answer.log_append_time_ms = info.log_append_time_ms
            answer.log_start_offset = partition.log.log_start_offset
            if replicas.needs_waiting(partition, info, request.acks):
                before = waiting.get(partition)
                end = info.last_offset + 1
                waiting[partition] = (answer, end if before is None else max(end, before[1]))
        topics.append(ProducedTopic(topic.name, topic.topic_id, answers))
    response = ProduceResponse(topics)
    if request.acks == 0:
        if failed:
            pending = PendingAnswer()
            pending.abort("a produce with acks=0 failed")
            return pending
        return None
    if not waiting:
        response.node_endpoints = hints.endpoints
        return produce.encode_response(response, version)
    return _wait(replicas, request, response, waiting, hints, version)


def _wait(
    replicas: ReplicaManager,
    request: ProduceRequest,
    response: ProduceResponse,
    waiting: dict[HostedPartition, tuple[ProducedPartition, int]],
    hints: LeaderHints,
    version: int,
) -> PendingAnswer:
    pending = PendingAnswer()

    def done(operation: DelayedProduce) -> None:
        if pending.is_done:
            return
        for partition, (answer, _) in waiting.items():
            error = operation.outcomes.get(partition, ErrorCode.REQUEST_TIMED_OUT)
            if error:
                answer.error_code = error
                answer.base_offset = answer.log_start_offset = -1
                answer.log_append_time_ms = -1
                if error in _WAIT_FOR_LEADER:
                    answer.current_leader = hints.leader_of(partition.topic, partition.index)
        response.node_endpoints = hints.endpoints
        pending.complete(produce.encode_response(response, version))

    operation = DelayedProduce(
        {partition: end for partition, (_, end) in waiting.items()},
        replicas.clock.monotonic_ms() + max(0, request.timeout_ms),
        done,
    )
    replicas.wait_produce(operation)
    pending.on_abandon = partial(replicas.purgatory.cancel, operation)
    return pending


def _partition(
    replicas: ReplicaManager, topic: ProduceTopic, name: str | None, index: int
) -> HostedPartition:
    if topic.topic_id is not None:
        return replicas.partition_by_id(topic.topic_id, name, index)
    assert name is not None
    return replicas.partition(name, index)


def _name_of(context: RequestContext, topic_id: bytes) -> str | None:
    topic = context.broker.state.topic_by_id(topic_id)
    return None if topic is None else topic.name


def _fail(
    answer: ProducedPartition, error: KafkaError, name: str | None, hints: LeaderHints
) -> None:
    answer.error_code = error.number
    if error.args and str(error) != error.code.sentence:
        answer.error_message = str(error)
    if error.code in _WAIT_FOR_LEADER and name is not None:
        answer.current_leader = hints.leader_of(name, answer.index)


def _refuse(
    context: RequestContext, request: ProduceRequest, version: int, error: KafkaError
) -> list[Buffer]:
    topics = [
        ProducedTopic(
            topic.name,
            topic.topic_id,
            [ProducedPartition(p.index, error.number) for p in topic.partitions],
        )
        for topic in request.topics
    ]
    return produce.encode_response(ProduceResponse(topics), version)


def _on_error(
    context: RequestContext, header: RequestHeader, body: memoryview, error: KafkaError
) -> list[Buffer] | PendingAnswer | None:
    request = produce.decode_request(body, header.api_version)
    if request.acks == 0:
        pending = PendingAnswer()
        pending.abort("a produce with acks=0 failed")
        return pending
    return _refuse(context, request, header.api_version, error)


def apis() -> tuple[Api, ...]:
    """The rows of the dispatch table."""
    return (
        Api(
            PRODUCE,
            produce.OLDEST,
            produce.NEWEST,
            handle,
            _on_error,
            is_pipelined=True,
            advertised_from=0,
        ),
    )
