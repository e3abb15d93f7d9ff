"""The commits of offsets, plain (`plain_commits`) or in a transaction.

OffsetCommit 2-10     KIP-88; v2-4 have a retention time (KIP-211), v6 leader epochs (KIP-320),
                      v7 static members (KIP-345), v9 GROUP_ID_NOT_FOUND, v10 topic ids (KIP-848).
TxnOffsetCommit 0-6   KIP-98; v3 names the member (KIP-447), v4 may answer TRANSACTION_ABORTABLE,
                      v5 adds the group's partition to the transaction by itself (KIP-890), v6
                      names topics by their ids (KIP-1319).

A request becomes one batch of __consumer_offsets, and is answered when the batch is committed.
Missing topics and partitions get their own errors. An error of the group applies to all existing
partitions. Before a transaction's first offsets of a group are appended, the transaction
coordinator is asked whether the transaction is ongoing. Otherwise offsets of an ended transaction
would open a transaction here that is never ended. A late request on an older connection of a client
without KIP-890 may belong to an earlier transaction. See `connection_fence`.

Difference from Kafka: the topic id is stored with every offset, not only for v10, so that offsets
of a deleted topic never apply to a new topic of the same name.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ....coordinator.groups.offset_table import OffsetTable
from ....coordinator.groups.records import (
    NO_TIMESTAMP,
    OffsetValue,
    encode_offset_key,
    encode_offset_value,
)
from ....coordinator.metadata.cluster_state import ClusterState
from ....runtime.steps import StepCounter, Steps
from ....wire.acls import AclOperation
from ....wire.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidCommitOffsetSize,
    InvalidGroupId,
    InvalidProducerEpoch,
    KafkaError,
    NotCoordinator,
    error_for,
)
from ....wire.framing import RequestHeader
from ....wire.messages import api_keys, requests, responses
from ....wire.records import Record, encoding_batch
from ...listener.dispatch import Api, CloseConnection, RequestContext, control_api
from ...partitions.hosted_partition import HostedPartition
from ...security.rights import on_each_topic, on_group, on_transactional_id
from ...services import BrokerServices
from ..answers import of_each_partition
from ..metadata.auto_creation import OFFSETS_TOPIC

if TYPE_CHECKING:
    _Request = requests.OffsetCommitRequest | requests.TxnOffsetCommitRequest
    _Topic = (
        requests.OffsetCommitRequest.OffsetCommitRequestTopic
        | requests.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    )
    _Response = responses.OffsetCommit.Response
    _TopicAnswer = responses.OffsetCommit.OffsetCommitResponseTopic
    _Answer = responses.OffsetCommit.OffsetCommitResponsePartition
# The limit for one partition of __consumer_offsets, at about 500 bytes each.
OFFSETS_MAX = 1_000_000
NO_SEQUENCE = NO_EPOCH = -1
TIMESTAMP_MAX = 2**63 - 1
TOPIC_IDS_FROM, ADDS_FROM, ABORTABLE_FROM, LOADING_FROM = 6, 5, 4, 2
OFFSETS_A_STEP = 100
# The limit of verifications of one request, each repeated because a marker was written.
QUESTIONS_MAX = 4
_AS_COORDINATOR = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def coordinator_error(error: KafkaError) -> int:
    """Translate an error of the coordinator's partition into the error for a group's client."""
    return _AS_COORDINATOR.get(error.number, error.number)  # type: ignore[arg-type]


class _Offset(NamedTuple):
    """An existing partition of a request, with the fields of its answer."""

    answer: "_Answer"
    topic: str
    partition: int
    value: OffsetValue


class SortedCommit:
    """A commit request whose existing partitions are separated from missing topics and partitions.

    `topics` is the answer, and `offsets` has the partitions that may be committed.
    """

    def __init__(self, broker: BrokerServices, request: "_Request") -> None:
        self.group_id: str = request.group_id
        self.now_ms = broker.clock.wall_ms()
        self.topics: list[_TopicAnswer] = []
        self.offsets: list[_Offset] = []
        self.is_refused = False  # True if any partition is refused or its topic is missing
        self.partitions: set[tuple[bytes, int]] = set()  # existing partitions by topic id
        self._ids: dict[str, bytes] = {}  # the ids of existing topics by name
        retention_ms = getattr(request, "retention_time", -1)
        self._expire_ms = NO_TIMESTAMP
        if retention_ms != -1:
            self._expire_ms = min(self.now_ms + retention_ms, TIMESTAMP_MAX)

    def sorting(self, state: ClusterState, request: "_Request") -> Steps[None]:
        """Check each topic and partition of the request, which is the first step of a commit."""
        counter = StepCounter(OFFSETS_A_STEP)
        for asked in request.topics:
            yield from self._sorting(state, asked, counter)
            if counter.ends_step():
                yield

    def _sorting(self, state: ClusterState, asked: "_Topic", counter: StepCounter) -> Steps[None]:
        topic_id = getattr(asked, "topic_id", None)
        if topic_id is None:
            topic, unknown = state.topics.get(asked.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            entry: _TopicAnswer = {"name": asked.name}
        else:
            topic, unknown = state.topic_by_id(topic_id), ErrorCode.UNKNOWN_TOPIC_ID
            entry = {"topic_id": topic_id}
        self.is_refused |= topic is None
        if topic is not None:
            self._ids[topic.name] = topic.topic_id
        answers: list[_Answer] = []
        entry["partitions"] = answers
        self.topics.append(entry)
        for each in asked.partitions:
            if counter.ends_step():
                yield
            index = each.partition_index
            answer: _Answer = {"partition_index": index, "error_code": ErrorCode.NONE}
            answers.append(answer)
            if topic is None:
                self._refuse(answer, unknown)
            elif not 0 <= index < len(topic.partitions):
                self._refuse(answer, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                value = OffsetValue(
                    each.committed_offset,
                    getattr(each, "committed_leader_epoch", NO_EPOCH),
                    each.committed_metadata or "",
                    self.now_ms,
                    self._expire_ms,
                    topic.topic_id,
                )
                self.offsets.append(_Offset(answer, topic.name, index, value))
                self.partitions.add((topic.topic_id, index))

    def _refuse(self, answer: "_Answer", number: int) -> None:
        self.is_refused = True
        answer["error_code"] = number

    def encoding(
        self,
        metadata_max: int,
        *,
        key: Callable[[str, str, int], bytes] = encode_offset_key,
        **producer: Any,
    ) -> Steps[bytes]:
        """Return the offsets encoded as one batch, or empty bytes if no offset is left.

        Offsets with more than `metadata_max` characters of metadata are left out, and get an error
        in the answer.
        """
        records: list[Record] = []
        for number, (answer, topic, partition, value) in enumerate(self.offsets, 1):
            if number % OFFSETS_A_STEP == 0:
                yield
            if len(value.metadata) > metadata_max:
                self._refuse(answer, ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            fields = key(self.group_id, topic, partition), encode_offset_value(value)
            records.append(Record(len(records), self.now_ms, *fields))
        return (yield from encoding_batch(records, **producer)) if records else b""

    def checking_room(self, table: OffsetTable) -> Steps[None]:
        """Raise InvalidCommitOffsetSize if the shard would exceed OFFSETS_MAX committed offsets.

        Partitions that have an offset in the shard need no room.
        """
        if table.size + len(self.offsets) <= OFFSETS_MAX:
            return
        added = 0
        for number, offset in enumerate(self.offsets, 1):
            is_new = not table.has(self.group_id, offset.topic, offset.partition)
            added += is_new
            if is_new and table.size + added > OFFSETS_MAX:
                raise InvalidCommitOffsetSize(
                    f"This partition of {OFFSETS_TOPIC} holds {table.size} offsets already"
                )
            if number % OFFSETS_A_STEP == 0:
                yield

    def check_topics(self, state: ClusterState) -> None:
        """Raise CoordinatorNotAvailable if a topic was deleted since `sorting`.

        Call it immediately before the append, which could replace an offset of a new topic of the
        same name.
        """
        for name, topic_id in self._ids.items():
            topic = state.topics.get(name)
            if topic is None or topic.topic_id != topic_id:
                raise CoordinatorNotAvailable(f"Topic {name} was deleted meanwhile.")

    def fail(self, number: int) -> "_Response":
        """Return an answer with the same error for all existing partitions."""
        for offset in self.offsets:
            self._refuse(offset.answer, number)
        return self.answer()

    def answer(self) -> "_Response":
        return {"topics": self.topics}


async def txn_offset_commit(
    context: RequestContext, header: RequestHeader, request: "requests.TxnOffsetCommitRequest"
) -> "responses.TxnOffsetCommit.Response":
    """Commit offsets of a group in a transaction, which its commit marker makes effective."""
    broker = context.broker
    version = header.api_version
    _check_connection(context, request, version)
    commit = SortedCommit(broker, request)
    await broker.work.finish("TxnOffsetCommit", commit.sorting(broker.state, request))
    if not commit.offsets:
        return _transactional(commit.answer())
    encoding = commit.encoding(
        broker.config.offset_metadata_max_bytes,
        transactional=True,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        base_sequence=NO_SEQUENCE,
    )
    batch = await broker.work.finish("TxnOffsetCommit", encoding)
    try:
        if not commit.group_id:
            raise InvalidGroupId
        shard = broker.groups.shard_for(commit.group_id)
        await broker.work.finish("TxnOffsetCommit", commit.checking_room(shard.offsets))
        partition, guard = await _verified(broker, request, version)
        shard = broker.groups.shard_for(commit.group_id)
        shard.check_offset_commit(
            commit.group_id,
            getattr(request, "member_id", ""),
            getattr(request, "group_instance_id", None),
            _generation(request, version),
            is_transactional=True,
            api_version=version,
            partitions=commit.partitions,
        )
        # Checked again, since the request may have become late.
        _check_connection(context, request, version)
        commit.check_topics(broker.state)
        if batch:
            partition.transactional_ids[request.producer_id] = request.transactional_id
            await broker.groups.append(shard, batch, guard=guard)
    except KafkaError as error:
        return _transactional(commit.fail(transactional_error(error, version)))
    return _transactional(commit.answer())


def _transactional(answer: "_Response") -> "responses.TxnOffsetCommit.Response":
    """Return the same answer as a TxnOffsetCommit response, which has the same fields."""
    return cast("responses.TxnOffsetCommit.Response", answer)


def _generation(request: "requests.TxnOffsetCommitRequest", version: int) -> int:
    """Return the member's generation or epoch. The field has another name since version 6."""
    if version >= TOPIC_IDS_FROM:
        return request.generation_id_or_member_epoch
    return getattr(request, "generation_id", NO_EPOCH)


def _check_connection(
    context: RequestContext, request: "requests.TxnOffsetCommitRequest", version: int
) -> None:
    """Raise CloseConnection for a connection older than the producer's newest connection.

    Requests of version 5 and later are not checked.
    """
    broker = context.broker
    if version >= ADDS_FROM or not broker.config.transaction_connection_fence:
        return
    now_ms = broker.clock.monotonic_ms()
    producer_id, epoch = request.producer_id, request.producer_epoch
    if not broker.offset_commit_fence.admits(producer_id, epoch, context.connection_id, now_ms):
        raise CloseConnection(
            f"offsets of {request.transactional_id!r} (producer {producer_id}, epoch {epoch}) came "
            "on a connection older than that producer's newest"
        )


async def _verified(
    broker: BrokerServices, request: "requests.TxnOffsetCommitRequest", version: int
) -> tuple[HostedPartition, int | None]:
    """Verify the transaction, and return the group's partition and the guard for the append.

    While the transaction is open in the partition, no verification is needed, and the guard is
    None. A marker that is written during the verification invalidates the guard, and the
    transaction is verified again. This happens regularly at the start of a transaction. The
    coordinator's answer waits for the markers of the producer's previous transaction, one of which
    may be for this partition.
    """
    shard = broker.groups.shard_for(request.group_id)
    partition = broker.replicas.get(OFFSETS_TOPIC, shard.index)
    if partition is None:
        raise NotCoordinator
    adds = version >= ADDS_FROM
    verified_guard: int | None = None
    for _ in range(QUESTIONS_MAX):
        partition.leading()
        producers = partition.log.producer_state
        entry = producers.entry(request.producer_id)
        if entry is not None and request.producer_epoch < entry.epoch:
            raise InvalidProducerEpoch  # the coordinator need not be asked (KAFKA-19690)
        guard = producers.begin_verification(
            request.producer_id,
            request.producer_epoch,
            NO_SEQUENCE,
            now_ms=broker.clock.wall_ms(),
            supports_epoch_bump=adds,
        )
        if guard is None or guard == verified_guard:
            return partition, guard
        (error,), ongoing_index = await broker.verifier.verify(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [(OFFSETS_TOPIC, shard.index)],
            adds=adds,
        )
        if error:
            raise error_for(error)
        producers.verified(request.producer_id, guard, ongoing_index)
        verified_guard = guard
    raise CoordinatorNotAvailable("a marker arrived during each verification of the transaction")


def transactional_error(error: KafkaError, version: int) -> int:
    """Return the code of an error as this version of TxnOffsetCommit knows it.

    PRODUCER_FENCED is replaced by INVALID_PRODUCER_EPOCH, because librdkafka treats PRODUCER_FENCED
    in this answer as an abortable error, not as a fatal one.
    """
    if error.number == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error.number == ErrorCode.STALE_MEMBER_EPOCH and version < TOPIC_IDS_FROM:
        return ErrorCode.ILLEGAL_GENERATION
    if error.number == ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    number = coordinator_error(error)
    if number == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_FROM:
        # KAFKA-7296: these clients crashed on COORDINATOR_LOAD_IN_PROGRESS.
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return number


def apis() -> tuple[Api, ...]:
    """Return the row of TxnOffsetCommit in the API table."""
    refuse = of_each_partition()
    rights = (
        on_transactional_id(AclOperation.WRITE),
        on_group(AclOperation.READ),
        on_each_topic(AclOperation.READ),
    )
    return (
        control_api(api_keys.TXN_OFFSET_COMMIT, (0, 6), txn_offset_commit, refuse, rights=rights),
    )
