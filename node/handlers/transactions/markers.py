"""The APIs to inspect and end hanging transactions (KIP-664).

WriteTxnMarkers 1-2 and DescribeProducers 0. The requests of this file come from admin clients.
Coordinators send their markers over the peer link. `node/transactions/marker_writer.py` writes
both. WriteTxnMarkers 2 has the transaction version (KIP-1228).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

from ....coordinator.metadata.topic_names import why_invalid
from ....coordinator.transactions.messages import TransactionMarker, WriteMarkers
from ....runtime.steps import StepCounter, Steps
from ....wire.acls import AclOperation
from ....wire.errors import ErrorCode, InvalidTopicException, KafkaError, UnknownTopicOrPartition
from ....wire.framing import RequestHeader
from ....wire.identifiers import TopicPartition
from ....wire.messages import api_keys, requests, responses
from ....wire.messages.schema_encoder import Each
from ...listener.dispatch import Api, RequestContext, control_api
from ...security.rights import on_cluster, on_each_topic
from ..answers import entries_bytes, of_each, of_each_partition
from ..when_led import named_indexes, when_led
from .producers import named_partitions

PRODUCERS_PER_STEP = 200
PARTITIONS_PER_STEP = 100
# Errors by producer id, topic, and partition, since all markers of a producer share one answer.
_Answers = dict[int, dict[str, dict[int, int]]]


# -- WriteTxnMarkers


async def write_txn_markers(
    context: RequestContext, header: RequestHeader, request: "requests.WriteTxnMarkersRequest"
) -> "responses.WriteTxnMarkers.Response":
    """Write each marker, and answer when all markers are committed or have failed."""
    broker = context.broker
    assert broker.markers is not None
    work = broker.work
    markers = await work.finish("WriteTxnMarkers", _markers(request))
    reply = await broker.markers.write_txn_markers(
        WriteMarkers(tuple(marker for marker in markers if _has_producer(marker))),
        wait_ms=broker.config.request_timeout_ms,
    )
    return await work.finish("WriteTxnMarkers", _outcomes(markers, reply.errors))


def _marked(request: "requests.WriteTxnMarkersRequest") -> Iterator[TopicPartition]:
    return chain.from_iterable(map(named_indexes, request.markers))


def _has_producer(marker: TransactionMarker) -> bool:
    return marker.producer_id >= 0 and marker.producer_epoch >= 0


def _markers(request: "requests.WriteTxnMarkersRequest") -> Steps[list[TransactionMarker]]:
    markers: list[TransactionMarker] = []
    for wanted in request.markers:
        topics = ((topic.name, topic.partition_indexes) for topic in wanted.topics)
        partitions = yield from named_partitions(topics)
        markers.append(
            TransactionMarker(
                producer_id=wanted.producer_id,
                producer_epoch=wanted.producer_epoch,
                coordinator_epoch=wanted.coordinator_epoch,
                is_commit=wanted.transaction_result,
                partitions=tuple(partitions),
                transaction_version=getattr(wanted, "transaction_version", 0),
            )
        )
        yield
    return markers


def _outcomes(
    markers: Sequence[TransactionMarker], errors: Iterable[Sequence[int]]
) -> "Steps[responses.WriteTxnMarkers.Response]":
    """Return the answer from the errors of each written marker.

    A marker with a negative producer id or epoch was not written, and gets INVALID_REQUEST.
    """
    written = iter(errors)
    answers: _Answers = {}
    counter = StepCounter()
    for marker in markers:
        topics = answers.setdefault(marker.producer_id, {})
        of_marker = next(written) if _has_producer(marker) else repeat(ErrorCode.INVALID_REQUEST)
        for (topic, index), error in zip(marker.partitions, of_marker, strict=False):
            topics.setdefault(topic, {})[index] = error
            if counter.ends_step():
                yield
        if counter.ends_step():
            yield
    return _answer(answers)


def _answer(answers: _Answers) -> "responses.WriteTxnMarkers.Response":
    return {"markers": Each(_of_producer, answers.items())}


def _of_producer(
    answer: tuple[int, dict[str, dict[int, int]]],
) -> "responses.WriteTxnMarkers.WritableTxnMarkerResult":
    producer_id, topics = answer
    return {"producer_id": producer_id, "topics": Each(_of_topic, topics.items())}


def _of_topic(
    answer: tuple[str, dict[int, int]],
) -> "responses.WriteTxnMarkers.WritableTxnMarkerTopicResult":
    topic, partitions = answer
    return {"name": topic, "partitions": Each(_of_partition, partitions.items())}


def _of_partition(
    answer: tuple[int, int],
) -> "responses.WriteTxnMarkers.WritableTxnMarkerPartitionResult":
    return {"partition_index": answer[0], "error_code": answer[1]}


def _marker_failed(
    wanted: "requests.WriteTxnMarkersRequest.WritableTxnMarker", error: KafkaError
) -> "responses.WriteTxnMarkers.WritableTxnMarkerResult":
    topics = of_each_partition(_index_and_code, asked="partition_indexes")
    return {"producer_id": wanted.producer_id, "topics": topics(wanted, error)["topics"]}


def _index_and_code(index: int, error: KafkaError) -> Any:
    return _of_partition((index, error.number))


# -- DescribeProducers


def describe_producers(
    context: RequestContext, header: RequestHeader, request: "requests.DescribeProducersRequest"
) -> "Steps[responses.DescribeProducers.Response]":
    """Return the active producers of each requested partition, led or followed here."""
    topics: list[responses.DescribeProducers.TopicResponse] = []
    counter = StepCounter(PARTITIONS_PER_STEP)
    for topic in request.topics:
        partitions: list[responses.DescribeProducers.PartitionResponse] = []
        topics.append({"name": topic.name, "partitions": partitions})
        if counter.ends_step():
            yield
        for index in topic.partition_indexes:
            answer: responses.DescribeProducers.PartitionResponse
            try:
                found = yield from _producers(context, topic.name, index)
                answer = {"partition_index": index, "error_code": 0, "active_producers": found}
            except KafkaError as error:
                answer = _failed(index, error)
            partitions.append(answer)
            if counter.ends_step():
                yield
    return {"topics": topics}


def _producers_bytes(
    context: RequestContext, request: "requests.DescribeProducersRequest"
) -> Steps[int]:
    def count(partition: TopicPartition) -> int:
        hosted = context.broker.replicas.get(*partition)
        return 1 if hosted is None else 1 + len(hosted.log.producer_state)

    asked = ((topic.name, index) for topic in request.topics for index in topic.partition_indexes)
    return (yield from entries_bytes(count, asked))


def _producers(
    context: RequestContext, topic: str, index: int
) -> "Steps[list[responses.DescribeProducers.ProducerState]]":
    if reason := why_invalid(topic):
        raise InvalidTopicException(reason)
    if topic not in context.broker.state.topics:
        raise UnknownTopicOrPartition
    partition = context.broker.replicas.partition(topic, index)
    producers: list[responses.DescribeProducers.ProducerState] = []
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


def _failed(index: int, error: KafkaError) -> "responses.DescribeProducers.PartitionResponse":
    message = str(error) if str(error) != error.code.sentence else None
    return {
        "partition_index": index,
        "error_code": error.number,
        "error_message": message,
        "active_producers": [],
    }


def apis() -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    return (
        control_api(
            api_keys.WRITE_TXN_MARKERS,
            (1, 2),
            when_led(write_txn_markers, _marked),
            of_each("markers", "markers", _marker_failed),
            rights=(on_cluster(AclOperation.ALTER, AclOperation.CLUSTER_ACTION),),
        ),
        control_api(
            api_keys.DESCRIBE_PRODUCERS,
            (0, 0),
            when_led(describe_producers, named_indexes),
            of_each_partition(_failed, asked="partition_indexes"),
            rights=(on_each_topic(AclOperation.READ),),
            answer_bytes=_producers_bytes,
        ),
    )
