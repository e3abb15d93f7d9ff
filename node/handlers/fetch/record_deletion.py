"""DeleteRecords 0-2 (KIP-107), which raises log start offsets and waits for the followers."""

import asyncio
from typing import TYPE_CHECKING

from ....coordinator.metadata.cluster_model import INTERNAL_TOPICS
from ....runtime.steps import Steps
from ....wire.acls import AclOperation
from ....wire.errors import (
    ErrorCode,
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    OffsetOutOfRange,
    PolicyViolation,
    RequestTimedOut,
)
from ....wire.framing import RequestHeader
from ....wire.messages import api_keys, requests, responses
from ...listener.dispatch import Api, RequestContext, control_api
from ...partitions.hosted_partition import HostedPartition
from ...security.rights import on_each_topic
from ..answers import nested, of_each_partition
from ..when_led import named_partitions, when_led

if TYPE_CHECKING:
    _Deleted = responses.DeleteRecords.DeleteRecordsPartitionResult

ENTRIES_PER_STEP = 100  # about 0.4 ms
DELETION_WAIT_MS_MAX = 10 * 60 * 1000  # the same limit as for other administrative requests
_POLL_S = 0.01
# A partition, the new log start offset, and the entry of the answer.
_Moved = tuple[HostedPartition, int, "_Deleted"]


async def delete_records(
    context: RequestContext, header: RequestHeader, request: "requests.DeleteRecordsRequest"
) -> "responses.DeleteRecords.Response":
    """Raise log start offsets, and wait until every live replica has raised its own."""
    broker = context.broker
    timeout_ms = max(0, min(request.timeout, DELETION_WAIT_MS_MAX))
    deadline_ms = broker.clock.monotonic_ms() + timeout_ms
    waiting: list[_Moved] = []
    topics = await broker.work.finish("DeleteRecords", _move_all(context, request, waiting))
    while waiting and not context.is_closed:
        waiting = await broker.work.finish("DeleteRecords", _unsettled(waiting))
        if not waiting:
            break
        if broker.clock.monotonic_ms() >= deadline_ms:
            for _, _, answer in waiting:
                answer |= {"low_watermark": -1, "error_code": RequestTimedOut.code}
            break
        await asyncio.sleep(_POLL_S)
    return {"topics": topics}


def _move_all(
    context: RequestContext, request: "requests.DeleteRecordsRequest", moved: list[_Moved]
) -> "Steps[list[responses.DeleteRecords.DeleteRecordsTopicResult]]":
    def move(
        topic: "requests.DeleteRecordsRequest.DeleteRecordsTopic",
        wanted: "requests.DeleteRecordsRequest.DeleteRecordsPartition",
    ) -> "_Deleted":
        try:
            partition, offset = _move_start(context, topic.name, wanted)
        except KafkaError as error:
            return _failed(wanted, error)
        answer: _Deleted = {"partition_index": wanted.partition_index}
        moved.append((partition, offset, answer))
        return answer

    return nested(request.topics, move)


def _unsettled(waiting: list[_Moved]) -> Steps[list[_Moved]]:
    """Return the partitions in which a live replica has not raised its log start offset yet."""
    left = []
    for number, entry in enumerate(waiting, 1):
        if not _is_settled(*entry):
            left.append(entry)
        if number % ENTRIES_PER_STEP == 0:
            yield
    return left


def _move_start(
    context: RequestContext,
    name: str,
    wanted: "requests.DeleteRecordsRequest.DeleteRecordsPartition",
) -> tuple[HostedPartition, int]:
    replicas = context.broker.replicas
    partition = replicas.partition(name, wanted.partition_index)
    partition.leading()
    log = partition.log
    if name in INTERNAL_TOPICS:
        raise InvalidTopicException(f"No client may delete records of {name}.")
    if log.config.is_compacted and not log.config.is_deleted_by_retention:
        raise PolicyViolation("records of a topic that is only compacted are not deleted")
    offset = log.high_watermark if wanted.offset == -1 else wanted.offset
    if offset < 0 or offset > log.high_watermark:
        raise OffsetOutOfRange(f"offset {offset} is beyond the high watermark")
    if offset > log.log_start_offset:
        try:
            log.retention.advance_log_start_offset(offset)
        except KafkaStorageError:
            replicas.fail(partition)
            raise
        replicas.log_start_moved(partition)
    return partition, offset


def _is_settled(partition: HostedPartition, offset: int, answer: "_Deleted") -> bool:
    leader = partition.leader
    if leader is None:
        answer |= {"low_watermark": -1, "error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER}
        return True
    low_watermark = leader.low_watermark(partition.log.log_start_offset)
    if low_watermark < offset:
        return False
    answer |= {"low_watermark": low_watermark, "error_code": ErrorCode.NONE}
    return True


def _failed(
    wanted: "requests.DeleteRecordsRequest.DeleteRecordsPartition", error: KafkaError
) -> "_Deleted":
    return {
        "partition_index": wanted.partition_index,
        "low_watermark": -1,
        "error_code": error.number,
    }


def apis() -> tuple[Api, ...]:
    """Return this file's row of the API table."""
    refuse = of_each_partition(_failed)
    decide = when_led(delete_records, named_partitions)
    rights = (on_each_topic(AclOperation.DELETE),)
    return (control_api(api_keys.DELETE_RECORDS, (0, 2), decide, refuse, rights=rights),)
