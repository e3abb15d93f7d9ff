"""From a decoded Produce request to its answer: every batch judged, appended, and waited for."""

from collections.abc import Callable, Hashable, Sequence
from functools import partial

from ....coordinator.metadata.cluster_model import INTERNAL_TOPICS
from ....replication.purgatory import DelayedProduce
from ....storage.batch_checks import TimestampOutOfRange
from ....storage.partition_log import AppendInfo
from ....wire.errors import (
    ErrorCode,
    InvalidRecord,
    InvalidTopicException,
    KafkaError,
    TransactionalIdAuthorizationFailed,
    UnsupportedCompressionType,
)
from ....wire.messages import produce
from ....wire.messages.produce import (
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from ....wire.record_batch import (
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    decode_header,
    validate_client_batch,
)
from ...listener.dispatch import Buffer, PendingAnswer, RequestContext
from ...partitions.hosted_partition import HostedPartition
from ...partitions.replica_manager import ReplicaManager
from ..leader_hints import LeaderHints
from .record_checks import (
    AT_ONCE_ITEMS_MAX,
    Verdicts,
    name_records_out_of_range,
    raise_refusal,
)

ZSTD, ZSTD_FROM = 4, 7
_ATTRIBUTES_AT = 22  # the low byte of a batch's attributes
_WAIT_FOR_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_OF_THE_BATCH = frozenset({
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
})  # fmt: skip
Encode = Callable[[ProduceResponse, int], list[Buffer]]
Append = Callable[[HostedPartition, memoryview, BatchHeader, int], AppendInfo]
# The partition, its answer, under which key it waits, and for which offset.
_Waiting = tuple[HostedPartition, ProducedPartition, Hashable, int]


def append_all(
    context: RequestContext,
    request: ProduceRequest,
    version: int,
    verdicts: Verdicts,
    append: Append | None = None,
    pending: PendingAnswer | None = None,
    encode: Encode = produce.encode_response,
) -> list[Buffer] | PendingAnswer | None:
    """Append every batch; the answer, now or when the replicas have them, None for acks=0.

    verdicts: of the records of partitions where they are looked at.
    append: what stands before `ReplicaManager.append`; without it no batch may be transactional.
    pending: the answer that was promised already; what comes later comes there.
    encode: what makes the body of an answer.
    """
    replicas = context.broker.replicas
    is_plain = append is None
    append = append or replicas.append
    now_ms, refused = replicas.clock.monotonic_ms, context.broker.refused_batches
    wanted_topics = request.topics
    is_single = len(wanted_topics) == 1 and len(wanted_topics[0].partitions) == 1
    if is_plain and not is_single and carries_transaction(request):  # before the first append
        return refuse_all(request, version, TransactionalIdAuthorizationFailed(), pending, encode)
    hints = LeaderHints(context.broker.state)
    waiting: list[_Waiting] = []  # a partition that is named twice has two batches, two answers
    topics: list[ProducedTopic] = []
    failed = False
    nameable = AT_ONCE_ITEMS_MAX
    for topic in wanted_topics:
        name = topic.name if topic.topic_id is None else _name_of(context, topic.topic_id)
        answers: list[ProducedPartition] = []
        for wanted in topic.partitions:
            answer, partition = ProducedPartition(wanted.index), None
            answers.append(answer)
            try:
                partition = _partition(replicas, topic, name, wanted.index)
                if wanted.records is None:
                    raise InvalidRecord("a produce request carries one batch for each partition")
                batch = validate_client_batch(
                    wanted.records, max_message_bytes=partition.log.config.max_message_bytes
                )
                if is_plain and batch.attributes & TRANSACTIONAL_BIT:
                    raise TransactionalIdAuthorizationFailed
                if batch.compression == ZSTD and version < ZSTD_FROM:
                    raise UnsupportedCompressionType("zstd came with version 7 (KIP-110)")
                if partition.log.config.needs_every_record:
                    raise_refusal(partition, wanted, verdicts)
                if refused:
                    producers = partition.log.producer_state
                    refused.check(context.connection_id, topic, wanted, batch, producers, now_ms())
                info = append(partition, wanted.records, batch, request.acks)  # type: ignore[arg-type]
            except KafkaError as error:
                if error.retriable:
                    refused.note(context.connection_id, topic, wanted, error, now_ms())
                if isinstance(error, TimestampOutOfRange):
                    nameable -= name_records_out_of_range(error, wanted, nameable)
                info = _appended_before(partition, wanted.records, error)
                if partition is None or info is None:
                    failed = True
                    _fail(answer, error, name, hints)
                    continue
            answer.base_offset = info.first_offset
            answer.log_append_time_ms = info.log_append_time_ms
            answer.log_start_offset = partition.log.log_start_offset
            key = replicas.wait_key(partition, info, request.acks)
            if key is not None:
                waiting.append((partition, answer, key, info.last_offset + 1))
        topics.append(ProducedTopic(topic.name, topic.topic_id, answers))
    response = ProduceResponse(topics)
    if failed and is_plain and carries_transaction(request):
        return refuse_all(request, version, TransactionalIdAuthorizationFailed(), pending, encode)
    if request.acks == 0:
        return refuse_unanswered(pending) if failed else None
    if failed and replicas.stalled:
        return _send_away(pending or PendingAnswer())
    if not waiting:
        response.node_endpoints = hints.endpoints
        return encode(response, version)
    return _wait(
        replicas,
        request,
        response,
        waiting,
        hints,
        lambda response: encode(response, version),
        pending or PendingAnswer(),
    )


def carries_transaction(request: ProduceRequest) -> bool:
    """Whether any batch is transactional, whatever the request says of itself (CVE-2018-17196)."""
    return any(
        partition.records is not None
        and len(partition.records) >= HEADER_BYTES
        and partition.records[_ATTRIBUTES_AT] & TRANSACTIONAL_BIT
        for topic in request.topics
        for partition in topic.partitions
    )


def refuse_all(
    request: ProduceRequest,
    version: int,
    error: KafkaError,
    pending: PendingAnswer | None = None,
    encode: Encode = produce.encode_response,
) -> list[Buffer] | PendingAnswer:
    """The answer that says the same error of every partition; with acks=0 the connection ends."""
    if request.acks == 0:
        return refuse_unanswered(pending)
    topics = [
        ProducedTopic(
            topic.name,
            topic.topic_id,
            [ProducedPartition(p.index, error.number) for p in topic.partitions],
        )
        for topic in request.topics
    ]
    return encode(ProduceResponse(topics), version)


def refuse_unanswered(pending: PendingAnswer | None = None) -> PendingAnswer:
    """Nobody waits for an answer to acks=0; the end of the connection makes the client look."""
    pending = pending or PendingAnswer()
    pending.abort("a produce with acks=0 failed")
    return pending


def _send_away(pending: PendingAnswer) -> PendingAnswer:
    """We are cut off: only a broken connection makes librdkafka ask another broker who leads."""
    pending.abort("this broker is cut off from the cluster")
    return pending


def _wait(
    replicas: ReplicaManager,
    request: ProduceRequest,
    response: ProduceResponse,
    waiting: Sequence[_Waiting],
    hints: LeaderHints,
    encode: Callable[[ProduceResponse], list[Buffer]],
    pending: PendingAnswer,
) -> PendingAnswer:
    def done(operation: DelayedProduce) -> None:
        if pending.is_done:
            return
        for partition, answer, key, _ in waiting:
            error = operation.outcomes.get(key, ErrorCode.REQUEST_TIMED_OUT)
            if error in _WAIT_FOR_LEADER and replicas.stalled:
                _send_away(pending)
                return
            if error:
                answer.error_code = error
                answer.base_offset = answer.log_start_offset = -1
                answer.log_append_time_ms = -1
                if error in _WAIT_FOR_LEADER:
                    answer.current_leader = hints.leader_of(partition.topic, partition.index)
        response.node_endpoints = hints.endpoints
        pending.complete(encode(response))

    required: dict[Hashable, int] = {}
    for _, _, key, end in waiting:
        required[key] = max(end, required.get(key, end))
    operation = DelayedProduce(
        required,
        replicas.clock.monotonic_ms() + max(0, request.timeout_ms),
        done,
    )
    replicas.wait_produce(operation)
    pending.on_abandon = partial(replicas.purgatory.cancel, operation)
    return pending


def _appended_before(
    partition: HostedPartition | None, records: Buffer | None, error: KafkaError
) -> AppendInfo | None:
    """Where the batch is, if it was appended before, and is refused only now, for what it says.

    Clocks, limits and rules change. Apache Kafka answers the error; a client that was not answered
    the first time would say that the records have failed, or split them and send them again.
    """
    if error.code not in _OF_THE_BATCH or partition is None or partition.leader is None:
        return None
    try:
        batch = decode_header(records or b"")
    except KafkaError:
        return None
    return partition.log.find_duplicate(batch)


def _partition(
    replicas: ReplicaManager, topic: ProduceTopic, name: str | None, index: int
) -> HostedPartition:
    if topic.topic_id is not None:
        partition = replicas.partition_by_id(topic.topic_id, name, index)
    else:
        assert name is not None
        partition = replicas.partition(name, index)
    if partition.topic in INTERNAL_TOPICS:
        raise InvalidTopicException(f"No client may write to {partition.topic}.")
    return partition


def _name_of(context: RequestContext, topic_id: bytes) -> str | None:
    topic = context.broker.state.topic_by_id(topic_id)
    return None if topic is None else topic.name


def _fail(
    answer: ProducedPartition, error: KafkaError, name: str | None, hints: LeaderHints
) -> None:
    answer.error_code = error.number
    if error.args and str(error) != error.code.sentence:
        answer.error_message = str(error)
    answer.record_errors = error.record_errors
    if error.code in _WAIT_FOR_LEADER and name is not None:
        answer.current_leader = hints.leader_of(name, answer.index)
