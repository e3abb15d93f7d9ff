"""The APIs of transactional producers (KIP-98), and of producer ids for all producers.

InitProducerId 0-6      v3 has the producer's id and epoch (KIP-360), v4 may answer
                        PRODUCER_FENCED (KIP-588), v5 TRANSACTION_ABORTABLE (KIP-890), v6 enables
                        two-phase commit and keeps prepared transactions (KIP-939)
AddPartitionsToTxn 0-5  0-3 are for clients, 4-5 for brokers, with several transactions and
                        verification (KIP-890)
AddOffsetsToTxn 0-4     adds the partition of __consumer_offsets of the group
EndTxn 0-5              v5 raises the producer's epoch and returns the new epoch (KIP-890)

Without a transactional id any broker assigns a new producer id with epoch 0, as in Kafka, even if
the request names an older id. A late request (KAFKA-17754) closes its connection.
"""

from collections.abc import Coroutine, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from ....coordinator.metadata.cluster_model import INTERNAL_TOPICS
from ....coordinator.sharding import shard_for
from ....coordinator.transactions.messages import VerifyTransaction
from ....runtime.steps import StepCounter, Steps, made
from ....wire.acls import AclOperation, ResourceType
from ....wire.errors import (
    CoordinatorLoadInProgress,
    ErrorCode,
    InvalidRequest,
    KafkaError,
    UnsupportedVersion,
)
from ....wire.framing import RequestHeader
from ....wire.identifiers import TopicPartition
from ....wire.messages import api_keys, requests, responses
from ....wire.messages.schema_encoder import Each
from ...groups.coordinator import OFFSETS_TOPIC
from ...listener.dispatch import Api, RequestContext, control_api
from ...security.rights import CLUSTER, ByHandler, Resource, Right, on_group, on_transactional_id
from ...services import BrokerServices
from ..answers import code_only

PRODUCER_IDS_TIMEOUT_MS = 1000  # without a free producer id in this time the client must retry
NONE = -1
BROKERS_ASK_FROM = 4  # the version of AddPartitionsToTxn
TRANSACTIONS_A_TURN = 20
EPOCH_RAISED_FROM = 5  # the version of EndTxn
# Clients before these versions do not know PRODUCER_FENCED.
FENCED_KNOWN_FROM: dict[int, int] = {
    api_keys.INIT_PRODUCER_ID: 4,
    api_keys.ADD_PARTITIONS_TO_TXN: 2,
    api_keys.ADD_OFFSETS_TO_TXN: 2,
    api_keys.END_TXN: 2,
}
if TYPE_CHECKING:
    _Topic = requests.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    _TopicResult = responses.AddPartitionsToTxn.AddPartitionsToTxnTopicResult


async def init_producer_id(
    context: RequestContext, header: RequestHeader, request: "requests.InitProducerIdRequest"
) -> "responses.InitProducerId.Response":
    """Return a producer id and epoch for a new session."""
    producer_id = getattr(request, "producer_id", NONE)
    producer_epoch = getattr(request, "producer_epoch", NONE)
    if (producer_id == NONE) != (producer_epoch == NONE):
        raise InvalidRequest("A producer id and its epoch are given together or not at all.")
    await _check_producer_id(context, request)
    broker = context.broker
    if request.transactional_id is None:
        return {"producer_id": await _fresh_producer_id(broker), "producer_epoch": 0}
    answer = await broker.transactions.init_producer_id(
        request.transactional_id,
        request.transaction_timeout,
        expected=None if producer_id == NONE else (producer_id, producer_epoch),
        enables_two_phase_commit=getattr(request, "enable2_pc", False),
        keeps_prepared=getattr(request, "keep_prepared_txn", False),
        connection_id=context.connection_id,
        asked_by=f"client {header.client_id} at {context.peer_host}",
    )
    return {
        "error_code": _known(answer.error, header),
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
        "ongoing_txn_producer_id": answer.ongoing[0],
        "ongoing_txn_producer_epoch": answer.ongoing[1],
    }


async def add_partitions(
    context: RequestContext, header: RequestHeader, request: "requests.AddPartitionsToTxnRequest"
) -> "responses.AddPartitionsToTxn.Response":
    """Add partitions to a transaction, or only verify them for a broker (KIP-890)."""
    work, name = context.broker.work, "AddPartitionsToTxn"
    if header.api_version >= BROKERS_ASK_FROM:
        results: list[responses.AddPartitionsToTxn.AddPartitionsToTxnResult] = []
        for each in request.transactions:
            errors = await _errors_for_broker(context, header, each)
            topics = await work.finish(name, _results(each.topics, errors))
            results.append({"transactional_id": each.transactional_id, "topic_results": topics})
            if len(results) % TRANSACTIONS_A_TURN == 0:
                await work.run(name, made(len, [()], at_a_step=1))
        return {"results_by_transaction": results}
    partitions = await work.finish(name, _partitions(request.v3_and_below_topics))
    errors = await work.finish(name, _kept_out(context, partitions, is_client=True))
    if not errors:
        error = await context.broker.transactions.add_partitions(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            partitions,
            connection_id=context.connection_id,
        )
        errors = [_known(error, header)] * len(partitions)
    topics = await work.finish(name, _results(request.v3_and_below_topics, errors))
    return {"results_by_topic_v3_and_below": topics}


async def add_offsets(
    context: RequestContext, header: RequestHeader, request: "requests.AddOffsetsToTxnRequest"
) -> "responses.AddOffsetsToTxn.Response":
    """Add a group's partition of __consumer_offsets to a transaction."""
    broker = context.broker
    topic = broker.state.topics.get(OFFSETS_TOPIC)
    count = broker.config.offsets_topic_num_partitions if topic is None else len(topic.partitions)
    error = await broker.transactions.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [(OFFSETS_TOPIC, shard_for(request.group_id, count))],
        connection_id=context.connection_id,
    )
    return {"error_code": _known(error, header)}


def end_transaction(
    context: RequestContext, header: RequestHeader, request: "requests.EndTxnRequest"
) -> "Coroutine[Any, Any, responses.EndTxn.Response]":
    """Commit or abort a transaction, and answer when the coordinator's record of it is durable.

    The request's age is read before the coroutine begins, because a closed socket reports 0.
    """
    return _end_transaction(context, header, request, context.waited_ms())


async def _end_transaction(
    context: RequestContext,
    header: RequestHeader,
    request: "requests.EndTxnRequest",
    waited_ms: int,
) -> "responses.EndTxn.Response":
    answer = await context.broker.transactions.end_transaction(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        is_commit=request.committed,
        bumps_epoch=header.api_version >= EPOCH_RAISED_FROM,
        connection_id=context.connection_id,
        waited_ms=waited_ms,
    )
    return {
        "error_code": _known(answer.error, header),
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
    }


async def _fresh_producer_id(broker: BrokerServices) -> int:
    try:
        return await broker.controller.next_producer_id(
            broker.broker_epoch, timeout_ms=PRODUCER_IDS_TIMEOUT_MS
        )
    except KafkaError as error:
        raise CoordinatorLoadInProgress(f"No producer id yet: {error}") from error


async def _errors_for_broker(
    context: RequestContext,
    header: RequestHeader,
    transaction: "requests.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction",
) -> list[int]:
    """Add or verify the partitions of one transaction for a broker of Apache Kafka (versions 4-5).

    Returns an error code for each partition. Brokers of this project use `TransactionVerifier`
    instead.
    """
    work, name = context.broker.work, "AddPartitionsToTxn"
    partitions = await work.finish(name, _partitions(transaction.topics))
    keeping_out = _kept_out(context, partitions, is_client=False)
    if errors := await work.finish(name, keeping_out):
        return errors
    reply = await context.broker.transactions.verify(
        VerifyTransaction(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            tuple(partitions),
            adds=not transaction.verify_only,
        )
    )
    if reply.error == ErrorCode.UNSUPPORTED_VERSION:
        raise UnsupportedVersion  # of the whole request, as on Kafka
    if reply.error:
        return [_known(reply.error, header)] * len(partitions)
    return list(reply.errors)


def _partitions(topics: "Iterable[_Topic]") -> Steps[list[TopicPartition]]:
    return named_partitions((topic.name, topic.partitions) for topic in topics)


def named_partitions(
    topics: Iterable[tuple[str, Sequence[int]]],
) -> Steps[list[TopicPartition]]:
    """Return the partitions of all topics, in steps."""
    partitions: list[TopicPartition] = []
    counter = StepCounter()
    for name, indexes in topics:
        for index in indexes:
            partitions.append((name, index))
            if counter.ends_step():
                yield
        if counter.ends_step():
            yield
    return partitions


def _kept_out(
    context: RequestContext, partitions: Sequence[TopicPartition], *, is_client: bool
) -> Steps[list[int]]:
    """Return an empty list if all partitions exist and are writable, else an error for each.

    Partitions without an error of their own get OPERATION_NOT_ATTEMPTED.
    """
    errors = yield from made(lambda each: _own_error(context, each, is_client), partitions)
    if not any(errors):
        return []
    return [error or ErrorCode.OPERATION_NOT_ATTEMPTED for error in errors]


def _own_error(context: RequestContext, partition: TopicPartition, is_client: bool) -> int:
    broker = context.broker
    if (
        is_client
        and broker.authorizer is not None
        and not context.access.allows(AclOperation.WRITE, ResourceType.TOPIC, partition[0])
    ):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if is_client and partition[0] in INTERNAL_TOPICS:
        # As in Kafka, where offsets are committed by another API.
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if broker.state.partition(*partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _results(topics: "Iterable[_Topic]", errors: Iterable[int]) -> "Steps[list[_TopicResult]]":
    remaining = iter(errors)

    def answer(topic: "_Topic") -> "_TopicResult":
        of_topic = list(
            zip(topic.partitions, islice(remaining, len(topic.partitions)), strict=True)
        )
        return {"name": topic.name, "results_by_partition": Each(_result, of_topic)}

    return (yield from made(answer, topics))


def _result(
    outcome: tuple[int, int],
) -> "responses.AddPartitionsToTxn.AddPartitionsToTxnPartitionResult":
    return {"partition_index": outcome[0], "partition_error_code": outcome[1]}


def _known(error: int, header: RequestHeader) -> int:
    """Return the error, replaced if clients of this version do not know it."""
    is_old = header.api_version < FENCED_KNOWN_FROM[header.api_key]
    if error == ErrorCode.PRODUCER_FENCED and is_old:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def _refuse_partitions(
    request: "requests.AddPartitionsToTxnRequest", error: KafkaError
) -> "responses.AddPartitionsToTxn.Response":
    if hasattr(request, "transactions"):
        return {"error_code": error.number}
    topics = request.v3_and_below_topics

    def failed(topic: "_Topic") -> "_TopicResult":
        of_topic = [(index, error.number) for index in topic.partitions]
        return {"name": topic.name, "results_by_partition": Each(_result, of_topic)}

    return {"results_by_topic_v3_and_below": Each(failed, topics)}


def _no_producer(request: object, error: KafkaError) -> Any:
    return {"error_code": error.number, "producer_id": NONE, "producer_epoch": NONE}


async def _check_producer_id(
    context: RequestContext, request: "requests.InitProducerIdRequest"
) -> None:
    """Raise ClusterAuthorizationFailed if the client may not produce to any topic (KIP-679)."""
    if context.broker.authorizer is None or request.transactional_id is not None:
        return
    access = context.access
    if access.allows(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER):
        return
    asking = access.allows_any(AclOperation.WRITE, ResourceType.TOPIC)
    if not await context.broker.work.finish("InitProducerId", asking):
        raise access.refusal(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)


def _prepared(request: Any) -> Resource | None:
    """Return the transactional id as a resource if the request enables two-phase commit (KIP-939).

    Returns None for any other request, which needs no right to two-phase commit.
    """
    if not getattr(request, "enable2_pc", False) or request.transactional_id is None:
        return None
    return ResourceType.TRANSACTIONAL_ID, request.transactional_id


INIT_RIGHTS = (
    on_transactional_id(AclOperation.WRITE),
    Right((AclOperation.TWO_PHASE_COMMIT,), (ResourceType.TRANSACTIONAL_ID,), _prepared),
    ByHandler(
        (
            (AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER),
            (AclOperation.WRITE, ResourceType.TOPIC),
        )
    ),
)


def _of_brokers(request: Any) -> Resource | None:
    return CLUSTER if hasattr(request, "transactions") else None


ADD_RIGHTS = (
    on_transactional_id(AclOperation.WRITE, "v3_and_below_transactional_id"),
    Right((AclOperation.CLUSTER_ACTION,), (ResourceType.CLUSTER,), _of_brokers),
    ByHandler(((AclOperation.WRITE, ResourceType.TOPIC),)),
)


def apis() -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    return (
        control_api(
            api_keys.INIT_PRODUCER_ID, (0, 6), init_producer_id, _no_producer, rights=INIT_RIGHTS
        ),
        control_api(
            api_keys.ADD_PARTITIONS_TO_TXN,
            (0, 5),
            add_partitions,
            _refuse_partitions,
            rights=ADD_RIGHTS,
        ),
        control_api(
            api_keys.ADD_OFFSETS_TO_TXN,
            (0, 4),
            add_offsets,
            code_only,
            rights=(on_transactional_id(AclOperation.WRITE), on_group(AclOperation.READ)),
        ),
        control_api(
            api_keys.END_TXN,
            (0, 5),
            end_transaction,
            _no_producer,
            rights=(on_transactional_id(AclOperation.WRITE),),
        ),
    )
