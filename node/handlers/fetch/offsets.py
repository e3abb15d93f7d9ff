"""ListOffsets 1-11, OffsetForLeaderEpoch 2-4.

KIP-79 (offsets by time) · KIP-98 (isolation) · KIP-207 (not before the new leader knows its
high watermark) · KIP-320 (leader epochs) · KIP-734 (-3, largest timestamp) · KIP-405 and
KIP-1005 (-4 and -5, for a log without tiered storage).
"""

from collections import Counter
from collections.abc import Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ....runtime.steps import StepCounter, Steps
from ....wire.acls import AclOperation
from ....wire.errors import (
    ErrorCode,
    InvalidRequest,
    KafkaError,
    LeaderNotAvailable,
    UnsupportedVersion,
)
from ....wire.framing import RequestHeader
from ....wire.identifiers import TopicPartition
from ....wire.messages import api_keys, requests, responses
from ....wire.messages.schema_encoder import Each
from ...listener.dispatch import Api, RequestContext, control_api
from ...partitions.hosted_partition import HostedPartition
from ...security.rights import on_cluster, on_each_topic
from ..answers import nested, of_each_partition
from ..when_led import named_partitions, when_led
from .time_search import find_by_time

if TYPE_CHECKING:
    _AskedEpoch = requests.OffsetForLeaderEpochRequest.OffsetForLeaderPartition

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
EARLIEST_PENDING_UPLOAD = -6
_SINCE_VERSION = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
DEBUGGING_REPLICA = -2
READ_COMMITTED = 1
ENTRIES_PER_STEP = 100  # about 0.4 ms
Found = tuple[int, int, int]  # offset, timestamp, leader epoch; -1 where unknown
_NOTHING: Found = (-1, -1, -1)


# -- ListOffsets


def list_offsets(
    context: RequestContext, header: RequestHeader, request: "requests.ListOffsetsRequest"
) -> "Steps[responses.ListOffsets.Response] | Coroutine[Any, Any, responses.ListOffsets.Response]":
    """Return an offset for each requested timestamp."""
    searches: list[_Search] = []
    answers = _answers(context, header.api_version, request, searches)
    topics = request.topics
    if len(topics) > ENTRIES_PER_STEP or any(map(_has_search, topics)):
        return _with_searches(context, header.api_version, answers, searches)
    return answers


def _has_search(topic: "requests.ListOffsetsRequest.ListOffsetsTopic") -> bool:
    """Return whether ListOffsets may have to search for a timestamp in the topic.

    A topic with many partitions is not examined, and True is returned.
    """
    partitions = topic.partitions
    return len(partitions) > ENTRIES_PER_STEP or any(_is_searched(p.timestamp) for p in partitions)


class _Search(NamedTuple):
    """The search for a timestamp in one partition, with the partition's entry in the answer."""

    answer: "responses.ListOffsets.ListOffsetsPartitionResponse"
    partition: HostedPartition
    timestamp: int
    read_committed: bool
    current_leader_epoch: int
    is_debugging: bool


def _is_searched(timestamp: int) -> bool:
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


def _answers(
    context: RequestContext,
    version: int,
    request: "requests.ListOffsetsRequest",
    searches: list[_Search],
) -> "Steps[responses.ListOffsets.Response]":
    times: Counter[TopicPartition] = Counter()
    counter = StepCounter(ENTRIES_PER_STEP)
    for topic in request.topics:
        for wanted in topic.partitions:
            times[topic.name, wanted.partition_index] += 1
            if counter.ends_step():
                yield
        if counter.ends_step():
            yield

    def one(
        topic: "requests.ListOffsetsRequest.ListOffsetsTopic",
        wanted: "requests.ListOffsetsRequest.ListOffsetsPartition",
    ) -> "responses.ListOffsets.ListOffsetsPartitionResponse":
        answer: responses.ListOffsets.ListOffsetsPartitionResponse
        answer = {"partition_index": wanted.partition_index}
        try:
            if times[topic.name, wanted.partition_index] > 1:
                raise InvalidRequest("the request names a partition twice")
            search = _begin(context, version, request, topic.name, wanted, answer)
            if _is_searched(wanted.timestamp):
                searches.append(search)
            else:
                answer |= _found(_known(search))
        except KafkaError as error:
            answer |= _refused(version, error)
        return answer

    topics = yield from nested(request.topics, one, at_a_step=ENTRIES_PER_STEP)
    return {"topics": topics}


async def _with_searches(
    context: RequestContext,
    version: int,
    answers: "Steps[responses.ListOffsets.Response]",
    searches: list[_Search],
) -> "responses.ListOffsets.Response":
    values = await context.broker.work.run("ListOffsets", answers)
    for search in searches:
        try:
            search.answer.update(_found(await _searched(context, search)))
        except KafkaError as error:
            search.answer.update(_refused(version, error))
    return values


def _begin(
    context: RequestContext,
    version: int,
    request: "requests.ListOffsetsRequest",
    name: str,
    wanted: "requests.ListOffsetsRequest.ListOffsetsPartition",
    answer: "responses.ListOffsets.ListOffsetsPartitionResponse",
) -> _Search:
    timestamp = wanted.timestamp
    if version < _SINCE_VERSION.get(timestamp, 0) or timestamp < EARLIEST_PENDING_UPLOAD:
        raise UnsupportedVersion
    partition = context.broker.replicas.partition(name, wanted.partition_index)
    epoch = getattr(wanted, "current_leader_epoch", -1)
    partition.leading(epoch)
    isolation = getattr(request, "isolation_level", 0) == READ_COMMITTED
    is_debugging = request.replica_id == DEBUGGING_REPLICA
    return _Search(answer, partition, timestamp, isolation, epoch, is_debugging)


def _known(search: _Search) -> Found:
    """Return the offset of a special timestamp, such as LATEST or EARLIEST."""
    partition, log = search.partition, search.partition.log
    epoch = partition.leading(search.current_leader_epoch).leader_epoch
    if search.timestamp == LATEST:
        if search.is_debugging:
            return log.log_end_offset, -1, epoch
        latest = partition.latest_offset(search.read_committed, search.current_leader_epoch)
        return latest, -1, epoch
    if search.timestamp in (EARLIEST, EARLIEST_LOCAL):
        first_epoch = log.leader_epochs.epoch_for(log.log_start_offset)
        return log.log_start_offset, -1, -1 if first_epoch is None else first_epoch
    return _NOTHING


async def _searched(context: RequestContext, search: _Search) -> Found:
    partition, log = search.partition, search.partition.log
    timestamp, offset = search.timestamp, log.log_start_offset
    if timestamp == MAX_TIMESTAMP:
        timestamp, offset = log.max_timestamp, 0
        if timestamp < 0:
            return _NOTHING
    found = await find_by_time(context.broker, partition, timestamp, offset)
    leader = partition.leading(search.current_leader_epoch)
    upper = (
        log.log_end_offset if search.is_debugging else partition.readable_end(search.read_committed)
    )
    if found is None or found.offset >= upper:
        # The record may become readable once the new leader knows its high watermark.
        if found is not None and log.high_watermark < leader.epoch_start_offset:
            partition.latest_offset(search.read_committed, search.current_leader_epoch)
        return _NOTHING
    return found.offset, found.timestamp, found.leader_epoch


def _found(found: Found) -> "responses.ListOffsets.ListOffsetsPartitionResponse":
    offset, timestamp, leader_epoch = found
    return {
        "error_code": ErrorCode.NONE,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": leader_epoch,
    }


def _refused(
    version: int, error: KafkaError
) -> "responses.ListOffsets.ListOffsetsPartitionResponse":
    code = error.number
    if version < 5 and code == ErrorCode.OFFSET_NOT_AVAILABLE:
        code = LeaderNotAvailable.code
    return {"error_code": code}


# -- OffsetForLeaderEpoch


def offset_for_leader_epoch(
    context: RequestContext, header: RequestHeader, request: "requests.OffsetForLeaderEpochRequest"
) -> "responses.OffsetForLeaderEpoch.Response":
    """Return for each partition the largest epoch up to the requested epoch, and its end offset."""

    def one(name: str, wanted: "_AskedEpoch") -> "responses.OffsetForLeaderEpoch.EpochEndOffset":
        try:
            partition = context.broker.replicas.partition(name, wanted.partition)
            leader = partition.leading(getattr(wanted, "current_leader_epoch", -1))
            if wanted.leader_epoch == leader.leader_epoch:
                epoch, end_offset = leader.leader_epoch, partition.log.log_end_offset
            else:
                epoch, end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
        except KafkaError as error:
            return _no_epoch(wanted, error)
        return {
            "partition": wanted.partition,
            "error_code": ErrorCode.NONE,
            "leader_epoch": epoch,
            "end_offset": end_offset,
        }

    def of_topic(
        topic: "requests.OffsetForLeaderEpochRequest.OffsetForLeaderTopic",
    ) -> "responses.OffsetForLeaderEpoch.OffsetForLeaderTopicResult":
        return {
            "topic": topic.topic,
            "partitions": Each(partial(one, topic.topic), topic.partitions),
        }

    return {"topics": Each(of_topic, request.topics)}


def _named_epochs(request: "requests.OffsetForLeaderEpochRequest") -> Iterator[TopicPartition]:
    return ((topic.topic, each.partition) for topic in request.topics for each in topic.partitions)


def _no_epoch(
    wanted: "_AskedEpoch", error: KafkaError
) -> "responses.OffsetForLeaderEpoch.EpochEndOffset":
    return {"partition": wanted.partition, "error_code": error.number}


def apis() -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    return (
        control_api(
            api_keys.LIST_OFFSETS,
            (1, 11),
            when_led(list_offsets, named_partitions),
            of_each_partition(),
            rights=(on_each_topic(AclOperation.DESCRIBE),),
        ),
        control_api(
            api_keys.OFFSET_FOR_LEADER_EPOCH,
            (2, 4),
            when_led(offset_for_leader_epoch, _named_epochs),
            of_each_partition(_no_epoch),
            rights=(
                on_each_topic(
                    AclOperation.DESCRIBE, unless=on_cluster(AclOperation.CLUSTER_ACTION)
                ),
            ),
        ),
    )
