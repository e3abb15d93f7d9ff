"""The search for a partition's first record with at least a given timestamp, in steps.

The search starts from the time index and reads several batch headers in a step. A batch whose
maximum timestamp is large enough is decompressed (`batch_contents`) and read in slices up to the
first match. If the batch has append times, its header is enough. The leader may change and segments
may be deleted between two steps. If this broker no longer leads, the search raises
NotLeaderOrFollower.
"""

from typing import NamedTuple

from ....runtime.steps import Steps
from ....storage.partition_log import PartitionLog, TimedBatch
from ....wire.errors import NotLeaderOrFollower
from ....wire.record_batch import BatchHeader
from ....wire.record_walk import first_record_not_older
from ...partitions.batch_contents import contents
from ...partitions.hosted_partition import HostedPartition
from ...services import BrokerServices


class TimestampedOffset(NamedTuple):
    """A record found by its timestamp, with the leader epoch of its batch."""

    offset: int
    timestamp: int
    leader_epoch: int


async def find_by_time(
    broker: BrokerServices, partition: HostedPartition, timestamp_ms: int, offset: int
) -> TimestampedOffset | None:
    """Return the first record at or after `offset` with at least this timestamp, or None.

    `offset` must not be below the log start offset. Raises NotLeaderOrFollower, KafkaStorageError,
    and InvalidRecord for a corrupt batch.
    """
    name = f"a search by time in {partition}"
    while True:
        batch = await broker.work.run(name, _next_batch(partition, timestamp_ms, offset))
        if batch is None:
            return None
        header, data = batch
        found = from_header(header, offset)
        if found is None:
            async with broker.unfolded:
                records = await contents(data, header)
                found = await broker.work.run(
                    name, first_record_not_older(records, header, timestamp_ms, offset)
                )
        if found is not None:
            return TimestampedOffset(*found, header.partition_leader_epoch)
        offset = header.next_offset


def from_header(header: BatchHeader, offset: int) -> tuple[int, int] | None:
    """Return (offset, timestamp) of a batch's first record at or after `offset`, from its header.

    Returns None unless the batch has append times or a single record, and no gaps from compaction.
    """
    is_whole = header.record_count == header.last_offset_delta + 1
    if is_whole and (header.is_log_append_time or header.record_count == 1):
        return max(header.base_offset, offset), header.max_timestamp
    return None


def _next_batch(
    partition: HostedPartition, timestamp_ms: int, offset: int
) -> Steps[TimedBatch | None]:
    log: PartitionLog = partition.log
    while True:
        if partition.leader is None:
            raise NotLeaderOrFollower(f"this broker does not lead {partition} any more")
        step = log.batch_not_older(timestamp_ms, offset)
        if not isinstance(step, int):
            return step
        offset = step
        yield
