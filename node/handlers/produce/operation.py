"""The execution of a Produce request, with validation, append, and wait for replicas."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ....coordinator.metadata.cluster_model import INTERNAL_TOPICS
from ....replication.delayed_operations import DelayedProduce
from ....storage.batch_checks import TimestampOutOfRange
from ....storage.partition_log import AppendInfo
from ....wire.errors import (
    CorruptMessage,
    ErrorCode,
    InvalidRecord,
    InvalidTopicException,
    KafkaError,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
    UnsupportedCompressionType,
)
from ....wire.framing import Buffer
from ....wire.identifiers import TopicPartition
from ....wire.messages import produce
from ....wire.messages.produce import (
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    ProduceResponse,
)
from ....wire.record_batch import (
    COMPRESSION_MASK,
    TRANSACTIONAL_BIT,
    decode_header,
    validate_client_batch,
)
from ...listener.dispatch import RequestContext
from ...listener.pending_answer import PendingAnswer
from ...partitions.hosted_partition import HostedPartition
from ..leader_hints import LeaderHints
from .leader_append import LeaderAppend
from .permissions import may_write
from .record_checks import AT_ONCE_ITEMS_MAX, name_records_out_of_range
from .verification import (
    TransactionalProducer,
    Verification,
    client_error,
    must_be_verified,
    unverified,
)

ZSTD, ZSTD_FROM = 4, 7
_WAIT_FOR_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_OF_THE_BATCH = frozenset(
    {
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    }
)
Encode = Callable[[ProduceResponse, int], list[Buffer]]
Outcome = list[Buffer] | PendingAnswer | None
_UNVERIFIED: Mapping[HostedPartition, Verification] = {}


class _Waiting(NamedTuple):
    append: LeaderAppend
    partition: HostedPartition
    key: Hashable  # the result of ReplicaManager.wait_key
    end_offset: int


class ProduceOperation:
    """One Produce request, or a part of a request with many partitions.

    encode: builds the body of the answer. pending: the pending answer of a request in a queue.
    is_unled: this broker did not lead some partition when the request arrived.
    """

    __slots__ = (
        "_hints", "_led_by_ms", "acks", "appends", "context", "encode", "is_part", "is_unled",
        "pending", "producer", "records_checked", "request_time", "response", "timeout_ms",
        "transactional_id", "version",
    )  # fmt: skip

    def __init__(self, context: RequestContext, request: ProduceRequest, version: int) -> None:
        self.context = context
        self.version = version
        self.acks, self.timeout_ms = request.acks, request.timeout_ms
        self.transactional_id = request.transactional_id
        self.appends: list[LeaderAppend] = []
        self.encode: Encode = produce.encode_response
        self.pending: PendingAnswer | None = None
        self.request_time = context.request_time
        self.producer: TransactionalProducer | None = None
        self.records_checked = False
        self.is_part = False  # True for a part of a request with many partitions
        self.is_unled = False
        self._hints: LeaderHints | None = None
        replicas, topics = context.broker.replicas, list[ProducedTopic]()
        access = None if context.broker.authorizer is None else context.access
        for topic in request.topics:
            answers: list[ProducedPartition] = []
            for wanted in topic.partitions:
                records, answer = wanted.records, ProducedPartition(wanted.index)
                try:
                    header = decode_header(records or b"")
                except CorruptMessage:
                    header = None
                append = LeaderAppend(
                    topic.name, topic.topic_id, wanted.index, records, header, answer
                )
                if access is not None and not may_write(access, context.broker.state, append):
                    append.is_denied = True
                append.look_up(replicas)
                partition = append.partition
                if append.is_denied:
                    pass
                elif partition is None or partition.leader is None:
                    self.is_unled = True
                answers.append(answer)
                self.appends.append(append)
            topics.append(ProducedTopic(topic.name, topic.topic_id, answers))
        self.response = ProduceResponse(topics)
        if self.is_unled:
            self._led_by_ms = replicas.awaited.deadline_ms(self.timeout_ms)

    def look_up(self) -> None:
        """Look up the replica of each batch again after a wait.

        An unknown topic id may be known by then.
        """
        broker = self.context.broker
        access = None if broker.authorizer is None else self.context.access
        for append in self.appends:
            if access is not None and append.topic_id is not None and not append.is_denied:
                append.is_denied = not may_write(access, broker.state, append)
                append.partition = None
            append.look_up(broker.replicas)

    def is_awaited(self) -> bool:
        """Return whether this broker may soon lead a partition of the request.

        This includes an unknown partition, because another broker may have applied newer metadata.
        """
        awaited = self.context.broker.replicas.awaited
        return any(self._is_unknown(key) or awaited.is_awaited(*key) for key in self._unled())

    async def until_led(self) -> None:
        """Wait until this broker leads the partitions it was elected for, or until the deadline."""
        if self.is_unled and not self.is_abandoned:
            broker = self.context.broker
            if any(map(self._is_unknown, self._unled())):
                await broker.controller.catch_up(self._led_by_ms)
            await broker.replicas.awaited.wait(self._unled(), self._led_by_ms)

    def _unled(self) -> list[TopicPartition]:
        return [
            (self._topic_name(append) or "", append.index)
            for append in self.appends
            if not append.is_denied
            and (append.partition is None or append.partition.leader is None)
        ]

    def _is_unknown(self, key: TopicPartition) -> bool:
        return not self.context.broker.replicas.partition_exists(*key)

    def unverified(self) -> dict[HostedPartition, int]:
        """Return the partitions in which the request opens a transaction, with their new guards."""
        if self.producer is None or self.is_abandoned:
            return {}
        if self.pending is not None:
            self.look_up()
        now_ms = self.context.broker.replicas.clock.wall_ms()
        return unverified(self.appends, self.producer, now_ms)

    # -- in a queue

    def queue(self) -> PendingAnswer:
        """Create the pending answer of a request that waits in the queue, and return it."""
        self.pending = PendingAnswer(self._abandon)
        return self.pending

    def queue_as_part(self, pending: PendingAnswer, encode: Encode) -> None:
        """Make this operation a part of a larger request, with the part's own pending answer."""
        self.is_part, self.pending, self.encode = True, pending, encode
        pending.on_abandon = self._abandon

    @property
    def is_abandoned(self) -> bool:
        return self.pending is not None and self.pending.is_abandoned

    def _abandon(self) -> None:
        """Drop the batches, since the memory budget excludes batches of disconnected clients."""
        self.appends.clear()

    # -- appending

    def append(
        self, verifications: Mapping[HostedPartition, Verification] = _UNVERIFIED
    ) -> Outcome:
        """Append every batch, and return the answer, a pending answer, or None for acks=0."""
        replicas, refused = self.context.broker.replicas, self.context.broker.refused_batches
        if self.pending is not None:
            self.look_up()
        # A list, since a partition may have two batches in a request, with two answers.
        waiting: list[_Waiting] = []
        failed = False
        nameable = AT_ONCE_ITEMS_MAX
        for append in self.appends:
            try:
                info = self._append(append, verifications)
            except KafkaError as error:
                if error.retriable:
                    refused.note(
                        self.context.connection_id,
                        append.topic_key,
                        append.index,
                        append.header,
                        error,
                        replicas.clock.monotonic_ms(),
                    )
                if isinstance(error, TimestampOutOfRange):
                    nameable -= name_records_out_of_range(error, append, nameable)
                before = _appended_before(append, error)
                if before is None:
                    failed = True
                    self._fail(append, error)
                    continue
                info = before
                assert append.partition is not None
                append.partition.traffic.count_batch(0, 0)
            partition, answer = append.partition, append.answer
            assert partition is not None
            answer.base_offset = info.first_offset
            answer.log_append_time_ms = info.log_append_time_ms
            answer.log_start_offset = partition.log.log_start_offset
            key = replicas.wait_key(partition, info, self.acks)
            if key is not None:
                waiting.append(_Waiting(append, partition, key, info.last_offset + 1))
        if self.acks == 0:
            return self._close_silently() if failed else None
        if failed and replicas.stalled:
            return _send_away(self.pending or PendingAnswer())
        return self._wait(waiting) if waiting else self._encoded()

    def _append(
        self,
        append: LeaderAppend,
        verifications: Mapping[HostedPartition, Verification],
    ) -> AppendInfo:
        broker, partition, guard = self.context.broker, append.partition, None
        if append.is_denied:
            raise TopicAuthorizationFailed
        if partition is None:
            name = self._topic_name(append)
            replicas, topic_id = broker.replicas, append.topic_id
            if topic_id is None:
                assert name is not None
                # Raises an error if the partition is not hosted here.
                partition = replicas.partition(name, append.index)
            else:
                partition = replicas.partition_by_id(topic_id, name, append.index)
        if partition.topic in INTERNAL_TOPICS:
            raise InvalidTopicException(f"No client may write to {partition.topic}.")
        if partition.leader is None:
            # Raises an error if not leading, since only a leader can detect a duplicate.
            partition.leading()
        log = partition.log
        if append.records is None:
            raise InvalidRecord("a produce request carries one batch for each partition")
        header = validate_client_batch(
            append.records, append.header, max_message_bytes=log.config.max_message_bytes
        )
        if header.attributes & COMPRESSION_MASK == ZSTD and self.version < ZSTD_FROM:
            raise UnsupportedCompressionType("zstd came with version 7 (KIP-110)")
        if append.record_check or log.config.record_check:
            header = append.confirm(header, log.config, broker.replicas.clock)
        if broker.refused_batches:
            broker.refused_batches.check(
                self.context.connection_id,
                append.topic_key,
                append.index,
                header,
                log.producer_state,
                broker.replicas.clock.monotonic_ms(),
            )
        is_transactional = header.attributes & TRANSACTIONAL_BIT
        # A request outside of the queue was found verified in this turn of the event loop.
        if is_transactional and self.pending is not None:
            verification = verifications.get(partition)
            if verification is None:
                if must_be_verified(log.producer_state, header):
                    raise NotLeaderOrFollower(
                        f"{partition} has changed since its transaction was verified"
                    )
            elif verification.error:
                raise client_error(verification.error, self.version)
            else:
                guard = verification.guard
        info = broker.replicas.append(
            partition,
            append.records,  # type: ignore[arg-type]
            header,
            self.acks,
            guard=guard,
        )
        if info.is_duplicate:
            partition.traffic.count_batch(0, 0)
        else:
            partition.traffic.count_batch(header.record_count, len(append.records))
        if is_transactional:
            assert self.transactional_id is not None
            # Needed to check the open transaction later; see `hanging_transactions`.
            partition.transactional_ids[header.producer_id] = self.transactional_id
        return info

    def _fail(self, append: LeaderAppend, error: KafkaError) -> None:
        answer = append.answer
        answer.error_code = error.number
        if error.args and str(error) != error.code.sentence:
            answer.error_message = str(error)
        answer.record_errors = error.record_errors
        is_elsewhere = error.code in _WAIT_FOR_LEADER
        if append.partition is not None:
            append.partition.traffic.count_refused(is_failure=not is_elsewhere)
        if is_elsewhere:
            self._hint(append)
        elif error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
            self._note_fence(append)
        elif error.code is ErrorCode.UNKNOWN_PRODUCER_ID:
            # Java clients repeat the batch until delivery.timeout.ms without it. An offset above
            # their last acknowledged one makes them send the batch with sequence 0, which may be
            # the duplicate of another batch.
            answer.log_start_offset = 0

    def _note_fence(self, append: LeaderAppend) -> None:
        """Log the refusal of a fenced producer as a rate-limited event."""
        name, header = self._topic_name(append), append.header
        if name is None or header is None:
            return
        of = self.transactional_id or f"producer {header.producer_id}"
        words = (
            f"{of}: a batch of producer {header.producer_id} epoch {header.producer_epoch} is"
            f" refused in {name}/{append.index}, where a newer epoch has written"
        )
        self.context.broker.events.tell(
            "fence",
            of,
            "older epoch",
            words,
            topic=name,
            partition=append.index,
            producer_id=header.producer_id,
            epoch=header.producer_epoch,
            transactional_id=self.transactional_id,
        )

    def _hint(self, append: LeaderAppend) -> None:
        if self._hints is None:
            self._hints = LeaderHints(self.context)
        name = self._topic_name(append)
        if name is not None:
            append.answer.current_leader = self._hints.leader_of(name, append.index)

    def _topic_name(self, append: LeaderAppend) -> str | None:
        if append.topic_id is None:
            return append.topic_name
        topic = self.context.broker.state.topic_by_id(append.topic_id)
        return None if topic is None else topic.name

    # -- the answer

    def refuse(self, error: KafkaError) -> list[Buffer] | PendingAnswer:
        """Answer with one error for every partition, or with acks=0 close the connection."""
        if self.acks == 0:
            return self._close_silently()
        for topic in self.response.topics:
            topic.partitions = [ProducedPartition(p.index, error.number) for p in topic.partitions]
        return self._encoded()

    def _encoded(self) -> list[Buffer]:
        if self._hints is not None:
            self.response.node_endpoints = self._hints.endpoints
        if self.request_time is not None and not self.is_part:
            throttle_ms = max(self.response.throttle_time_ms, self.request_time.throttle_ms())
            self.response.throttle_time_ms = throttle_ms
        return self.encode(self.response, self.version)

    def _close_silently(self) -> PendingAnswer:
        """Close the connection of an acks=0 produce, so that its client refreshes its metadata."""
        pending = self.pending or PendingAnswer()
        pending.abort("a produce with acks=0 failed")
        return pending

    def _wait(self, waiting: Sequence[_Waiting]) -> PendingAnswer:
        replicas, pending = self.context.broker.replicas, self.pending or PendingAnswer()
        for append in self.appends:
            append.records = None

        def done(operation: DelayedProduce) -> None:
            if pending.is_done:
                return
            try:
                for append, _, key, _ in waiting:
                    error = operation.outcomes.get(key, ErrorCode.REQUEST_TIMED_OUT)
                    if error in _WAIT_FOR_LEADER and replicas.stalled:
                        _send_away(pending)
                        return
                    if error:
                        answer = append.answer
                        answer.error_code = error
                        answer.base_offset = answer.log_start_offset = -1
                        answer.log_append_time_ms = -1
                        if error in _WAIT_FOR_LEADER:
                            self._hint(append)
                pending.complete(self._encoded())
            except Exception as failure:
                pending.fail(failure, self.refuse)

        required: dict[Hashable, int] = {}
        for _, _, key, end in waiting:
            required[key] = max(end, required.get(key, end))
        deadline_ms = replicas.clock.monotonic_ms() + max(0, self.timeout_ms)
        operation = DelayedProduce(required, deadline_ms, done)
        replicas.wait_produce(operation)
        pending.on_abandon = partial(replicas.purgatory.cancel, operation)
        return pending


def _send_away(pending: PendingAnswer) -> PendingAnswer:
    """Close a client's connection to this isolated leader, so that it asks another broker.

    librdkafka would otherwise ask this broker for the new leader.
    """
    pending.abort("this broker is cut off from the cluster")
    return pending


def _appended_before(append: LeaderAppend, error: KafkaError) -> AppendInfo | None:
    """Return the offsets of the first copy if the refused batch is a duplicate, else None.

    The first copy may have passed the check, because clocks, limits and rules change. Apache Kafka
    answers with the error. A client that did not get the answer to the first copy would then report
    the records as failed, or split them and send them again.
    """
    partition, header = append.partition, append.header
    if error.code not in _OF_THE_BATCH or partition is None or partition.leader is None:
        return None
    return None if header is None else partition.log.find_duplicate(header)
