"""WriteTxnMarkers 1-2 and DescribeProducers 0: how people look into hanging transactions, and end
them (KIP-664).

The cluster's own markers travel over the peer link; these come from admin clients. Version 2 of
WriteTxnMarkers tells the transaction version (KIP-1228).
"""

from typing import Any

from ...coordinator.topic_names import why_invalid
from ...coordinator.transactions.messages import TransactionMarker, WriteMarkers
from ...wire.errors import (
    ErrorCode,
    InvalidTopicException,
    KafkaError,
    UnknownTopicOrPartition,
)
from ...wire.framing import RequestHeader
from ...wire.steps import Steps
from ..dispatch import Api, RequestContext, Values, control_api

WRITE_TXN_MARKERS, DESCRIBE_PRODUCERS = 27, 61
PRODUCERS_PER_STEP = 200
PARTITIONS_PER_STEP = 100


# -- WriteTxnMarkers


async def write_txn_markers(context: RequestContext, header: RequestHeader, request: Any) -> Values:
    """Write each marker; answered when all of them are committed, or have failed."""
    broker = context.broker
    assert broker.markers is not None
    of_producers = [wanted for wanted in request.markers if _has_producer(wanted)]
    reply = await broker.markers.write(
        WriteMarkers(tuple(_marker(wanted) for wanted in of_producers)),
        wait_ms=broker.config.request_timeout_ms,
    )
    written = iter(reply.errors)
    answers: dict[int, dict[str, dict[int, int]]] = {}  # a producer's markers are told together
    for wanted in request.markers:
        topics = answers.setdefault(wanted.producer_id, {})
        if _has_producer(wanted):
            errors = next(written)
        else:
            errors = [ErrorCode.INVALID_REQUEST] * len(_partitions(wanted))
        for (topic, index), error in zip(_partitions(wanted), errors, strict=True):
            topics.setdefault(topic, {})[index] = error
    return _answer(answers)


def _has_producer(wanted: Any) -> bool:
    return wanted.producer_id >= 0 and wanted.producer_epoch >= 0


def _marker(wanted: Any) -> TransactionMarker:
    return TransactionMarker(
        producer_id=wanted.producer_id,
        producer_epoch=wanted.producer_epoch,
        coordinator_epoch=wanted.coordinator_epoch,
        is_commit=wanted.transaction_result,
        partitions=_partitions(wanted),
        transaction_version=getattr(wanted, "transaction_version", 0),
    )


def _partitions(wanted: Any) -> tuple[tuple[str, int], ...]:
    return tuple(
        (topic.name, index) for topic in wanted.topics for index in topic.partition_indexes
    )


def _answer(answers: dict[int, dict[str, dict[int, int]]]) -> Values:
    return {
        "markers": [
            {
                "producer_id": producer_id,
                "topics": [
                    {
                        "name": topic,
                        "partitions": [
                            {"partition_index": index, "error_code": error}
                            for index, error in partitions.items()
                        ],
                    }
                    for topic, partitions in topics.items()
                ],
            }
            for producer_id, topics in answers.items()
        ]
    }


def _markers_error(request: Any, error: KafkaError) -> Values:
    answers: dict[int, dict[str, dict[int, int]]] = {}
    for wanted in request.markers:
        topics = answers.setdefault(wanted.producer_id, {})
        for topic, index in _partitions(wanted):
            topics.setdefault(topic, {})[index] = error.number
    return _answer(answers)


# -- DescribeProducers


def describe_producers(
    context: RequestContext, header: RequestHeader, request: Any
) -> Steps[Values]:
    """What each asked partition knows of its producers; any replica may be asked."""
    topics: list[dict[str, Any]] = []
    for topic in request.topics:
        partitions: list[dict[str, Any]] = []
        topics.append({"name": topic.name, "partitions": partitions})
        for index in topic.partition_indexes:
            try:
                found = yield from _producers(context, topic.name, index)
                answer = {"partition_index": index, "error_code": 0, "active_producers": found}
            except KafkaError as error:
                answer = _failed(index, error)
            partitions.append(answer)
            if len(partitions) % PARTITIONS_PER_STEP == 0:
                yield
    return {"topics": topics}


def _producers(context: RequestContext, topic: str, index: int) -> Steps[list[dict[str, Any]]]:
    if reason := why_invalid(topic):
        raise InvalidTopicException(reason)
    if topic not in context.broker.state.topics:
        raise UnknownTopicOrPartition
    partition = context.broker.replicas.partition(topic, index)
    producers: list[dict[str, Any]] = []
    for entry in partition.log.producer_state.entries():
        producers.append(
            {
                "producer_id": entry.producer_id,
                "producer_epoch": entry.epoch,
                "last_sequence": entry.last_sequence,
                "last_timestamp": entry.last_timestamp,
                "coordinator_epoch": entry.coordinator_epoch,
                "current_txn_start_offset": entry.transaction_first_offset,
            }
        )
        if len(producers) % PRODUCERS_PER_STEP == 0:
            yield
    return producers


def _failed(index: int, error: KafkaError) -> dict[str, Any]:
    message = str(error) if str(error) != error.code.sentence else None
    return {
        "partition_index": index,
        "error_code": error.number,
        "error_message": message,
        "active_producers": [],
    }


def _describe_error(request: Any, error: KafkaError) -> Values:
    return {
        "topics": [
            {"name": t.name, "partitions": [_failed(index, error) for index in t.partition_indexes]}
            for t in request.topics
        ]
    }


def apis() -> tuple[Api, ...]:
    """The rows of the dispatch table."""
    return (
        control_api(WRITE_TXN_MARKERS, (1, 2), write_txn_markers, _markers_error),
        control_api(DESCRIBE_PRODUCERS, (0, 0), describe_producers, _describe_error),
    )
