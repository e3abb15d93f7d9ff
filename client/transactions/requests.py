"""The requests of one transactional id to its coordinator, each retried until it is decided.

`reactions` has the meaning of answers. Errors are marked `.abortable` or `.fatal`. An error without
a mark means a passed deadline, and the same call may be repeated. All requests use one connection,
which the broker serves in order.

V2 (KIP-890) is used if the cluster has finalized transaction.version 2 and the coordinator serves
EndTxn version 5. The versions of V1 and V2 requests differ, and tell the broker which protocol is
used.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ...wire.errors import (
    ErrorCode,
    KafkaError,
    TransactionalIdAuthorizationFailed,
    UnsupportedVersion,
)
from ...wire.identifiers import Identity, TopicPartition
from ..by_topic import committed_by_topic, entries_by_topic
from ..cluster_view import ClusterView
from ..connection import NEWEST, BrokerConnection
from ..coordinator_lookup import GROUP, TRANSACTION, find_coordinator
from ..failures import UNREACHABLE, as_abortable, as_fatal
from ..group_metadata import GroupMetadata, OffsetAndMetadata
from ..retries import Backoff, until_decided
from ..security.permissions import error_about
from .reactions import Reaction, Request, reaction_to

CHANNEL = "transactions"
FEATURE, V2_LEVEL = "transaction.version", 2
END_V2, OFFSETS_V2, ADD_TO_OFFSETS_V1, PREPARED = 5, 5, 4, 6
OFFSETS_BY_ID = 6  # TxnOffsetCommit (KIP-1319)
RAISES_EPOCH_FROM = 3  # InitProducerId (KIP-360)
T = TypeVar("T")
PREPARED_HELP = (
    "prepared transactions (KIP-939) are not served; Apache Kafka serves them with "
    "unstable.api.versions.enable=true and transaction.two.phase.commit.enable=true"
)
KEEPING_HELP = (
    "this cluster does not keep a prepared transaction when its id is taken (Apache Kafka 4.3 does "
    "not yet): end it with complete(token), then call init_transactions() without keeping"
)


@dataclass(frozen=True, slots=True)
class Session:
    """The result of InitProducerId.

    `ongoing` is (id, epoch) of a prepared transaction that was kept.
    """

    producer_id: int
    producer_epoch: int
    ongoing: Identity = (-1, -1)


class TransactionRequests:
    """The requests of a transactional id. The caller closes the view."""

    def __init__(
        self,
        view: ClusterView,
        transactional_id: str,
        *,
        timeout_ms: int,
        backoff: Identity,
        version_max: int = V2_LEVEL,
    ) -> None:
        self._view, self.transactional_id = view, transactional_id
        self._timeout_ms, self._backoff, self._version_max = timeout_ms, backoff, version_max
        self._coordinators: dict[tuple[int, str], int] = {}
        self.is_v2 = self.can_raise_epoch = False
        self.lost_answers = 0  # requests that may still take effect
        self.ends_sent = 0  # EndTxn requests, repeated ones too

    async def init_producer_id(
        self,
        deadline_ms: int,
        *,
        transaction_timeout_ms: int,
        current: Identity = (-1, -1),
        enables_prepare: bool = False,
        keeps_prepared: bool = False,
    ) -> Session:
        """Call InitProducerId, and return the producer id and epoch.

        current: the id and epoch of this producer, whose epoch is then raised (KIP-360).
        """
        values: dict[str, Any] = {
            "transactional_id": self.transactional_id,
            "transaction_timeout": transaction_timeout_ms,
            "producer_id": current[0],
            "producer_epoch": current[1],
        }
        newest = PREPARED - 1
        if enables_prepare or keeps_prepared:
            newest = PREPARED
            values |= {"enable2_pc": enables_prepare, "keep_prepared_txn": keeps_prepared}

        was_refused = False

        def read(answer: Any) -> tuple[int, Session]:
            nonlocal was_refused
            was_refused = keeps_prepared and int(answer.error_code) == ErrorCode.UNSUPPORTED_VERSION
            ongoing = (
                getattr(answer, "ongoing_txn_producer_id", -1),
                getattr(answer, "ongoing_txn_producer_epoch", -1),
            )
            session = Session(int(answer.producer_id), int(answer.producer_epoch), ongoing)
            return int(answer.error_code), session

        try:
            return await self._until_decided(
                Request.INIT_PRODUCER_ID, values, deadline_ms, read, newest
            )
        except TransactionalIdAuthorizationFailed as problem:
            if enables_prepare:
                raise as_fatal(
                    TransactionalIdAuthorizationFailed(
                        f"{problem} (with transaction.two.phase.commit.enable=false a broker "
                        "refuses prepared transactions in these words)"
                    )
                ) from None
            raise
        except UnsupportedVersion:
            if was_refused:
                # the id can be taken without keeping
                raise UnsupportedVersion(KEEPING_HELP) from None
            raise

    async def add_partitions(
        self, producer: Identity, partitions: tuple[TopicPartition, ...], deadline_ms: int
    ) -> None:
        """Send AddPartitionsToTxn for these partitions (V1)."""
        values = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": producer[0],
            "v3_and_below_producer_epoch": producer[1],
            "v3_and_below_topics": entries_by_topic(partitions),
        }

        def read(answer: Any) -> tuple[int, None]:
            codes = [
                int(p.partition_error_code)
                for topic in answer.results_by_topic_v3_and_below
                for p in topic.results_by_partition
            ]
            return _first_cause(codes), None

        await self._until_decided(Request.ADD_PARTITIONS, values, deadline_ms, read)

    async def add_offsets(self, producer: Identity, group_id: str, deadline_ms: int) -> None:
        """Send AddOffsetsToTxn for a group (V1)."""
        values = {**self._producer(producer), "group_id": group_id}
        await self._until_decided(
            Request.ADD_OFFSETS, values, deadline_ms, lambda answer: (int(answer.error_code), None)
        )

    async def commit_offsets(
        self,
        producer: Identity,
        group: GroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline_ms: int,
        *,
        is_v2: bool,
    ) -> None:
        """Send TxnOffsetCommit. The offsets count when the transaction commits."""
        topics = committed_by_topic(offsets)
        is_by_id = is_v2 and offsets.keys() <= group.topic_ids.keys()
        if is_by_id:  # beside the name, for brokers without ids in this request
            for topic in topics:
                place = topic["name"], topic["partitions"][0]["partition_index"]
                topic["topic_id"] = group.topic_ids[place]
        values = {
            **self._producer(producer),
            "group_id": group.group_id,
            "generation_id": group.generation_id,
            # the field's name from version 6 on
            "generation_id_or_member_epoch": group.generation_id,
            "member_id": group.member_id,
            "group_instance_id": group.group_instance_id,
            "topics": topics,
        }

        def read(answer: Any) -> tuple[int, None]:
            codes = [int(p.error_code) for t in answer.topics for p in t.partitions]
            return _first_cause(codes), None

        newest = OFFSETS_V2 if is_v2 else ADD_TO_OFFSETS_V1
        newest = OFFSETS_BY_ID if is_by_id else newest
        key = (GROUP, group.group_id)
        await self._until_decided(Request.COMMIT_OFFSETS, values, deadline_ms, read, newest, key)

    async def end(
        self, producer: Identity, deadline_ms: int, *, is_commit: bool, is_v2: bool
    ) -> Identity:
        """Commit or abort the transaction. Return (id, epoch) of the next transaction.

        A repeated request is harmless.
        """
        values = {**self._producer(producer), "committed": is_commit}

        def read(answer: Any) -> tuple[int, Identity]:
            given = (getattr(answer, "producer_id", -1), getattr(answer, "producer_epoch", -1))
            return int(answer.error_code), given if given[0] >= 0 else producer

        newest = END_V2 if is_v2 else END_V2 - 1
        return await self._until_decided(Request.END_TRANSACTION, values, deadline_ms, read, newest)

    def _producer(self, producer: Identity) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
        }

    async def _call(
        self, connection: BrokerConnection, request: Request, values: dict[str, Any], newest: int
    ) -> Any:
        prepares = request is Request.INIT_PRODUCER_ID and newest == PREPARED
        if prepares and connection.version_for(request.value) < PREPARED:
            raise UnsupportedVersion(f"{connection.host}:{connection.port}: {PREPARED_HELP}")
        self.ends_sent += request is Request.END_TRANSACTION
        try:
            return await connection.call(
                request.value, values, timeout_ms=self._timeout_ms, newest=newest
            )
        except BaseException as problem:  # or the caller was cancelled: it may still take effect
            is_answered = isinstance(problem, KafkaError) and not isinstance(problem, UNREACHABLE)
            self.lost_answers += not is_answered
            raise

    async def _until_decided(
        self,
        request: Request,
        values: dict[str, Any],
        deadline_ms: int,
        read: Callable[[Any], tuple[int, T]],
        newest: int = NEWEST,
        coordinator: tuple[int, str] | None = None,
    ) -> T:
        """Repeat a request until its error code is 0 or its error is not retriable.

        `read` returns the error code and the result of an answer. Return that result, or raise the
        error. coordinator: the key of another coordinator, such as a group's, than that of the
        transactional id.
        """
        key = coordinator or (TRANSACTION, self.transactional_id)

        async def attempt() -> tuple[KafkaError | None, T]:
            connection = await self._coordinator(key)
            code, answer = read(await self._call(connection, request, values, newest))
            return self._problem(request, code, key) if code else None, answer

        def judge(problem: KafkaError) -> None:
            reaction = reaction_to(request, problem.number)
            if reaction is Reaction.ABORTABLE:
                raise as_abortable(problem)
            if reaction is Reaction.FATAL:
                raise as_fatal(problem)
            if reaction is Reaction.FIND_COORDINATOR:
                self._coordinators.pop(key, None)

        name = request.name.lower().replace("_", " ")
        return await until_decided(attempt, judge, Backoff(*self._backoff, deadline_ms), name)

    def _problem(self, request: Request, code: int, key: tuple[int, str]) -> KafkaError:
        if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return error_about(code, self.transactional_id, "Write")
        is_of_key = code == ErrorCode.GROUP_AUTHORIZATION_FAILED and key[0] == GROUP
        reads = request in (Request.ADD_OFFSETS, Request.COMMIT_OFFSETS)
        return error_about(code, key[1] if is_of_key else "NAME", "Read" if reads else "Write")

    async def _coordinator(self, key: tuple[int, str]) -> BrokerConnection:
        node_id = self._coordinators.get(key)
        if node_id is None:
            node_id = await find_coordinator(self._view, key[1], key[0])
            self._coordinators[key] = node_id
        connection = await self._view.broker(node_id, CHANNEL)
        if key[0] == TRANSACTION:
            served = connection.versions
            self.is_v2 = (
                self._version_max >= V2_LEVEL
                and connection.features.get(FEATURE, 0) >= V2_LEVEL
                and served.get(Request.END_TRANSACTION.value, (0, 0))[1] >= END_V2
            )
            newest = served.get(Request.INIT_PRODUCER_ID.value, (0, 0))[1]
            self.can_raise_epoch = newest >= RAISES_EPOCH_FROM
        return connection


def _first_cause(codes: list[int]) -> int:
    """Return the first error code that is not OPERATION_NOT_ATTEMPTED (55).

    A code of 55 only follows from the error of another partition. It is returned if there is no
    other error, and 0 is returned without any error.
    """
    wrong = [code for code in codes if code]
    return next((code for code in wrong if code != 55), wrong[0] if wrong else 0)
