"""The search for a partition's first record that is not older than a time, in steps.

A log is searched from its time index on, some headers in a step. A batch that is young enough is
decompressed (`batch_contents`) and read in slices to its first match, unless its header is enough,
as with append times. The leader may change and logs may be deleted between two steps: a broker that
leads no longer raises NotLeaderOrFollower.
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
    """A record found by its time; the epoch is that of its batch."""

    offset: int
    timestamp: int
    leader_epoch: int


async def find_by_time(
    broker: BrokerServices, partition: HostedPartition, timestamp_ms: int, offset: int
) -> TimestampedOffset | None:
    """Return the first record at or above `offset`, which is not below the log start.

    Raises NotLeaderOrFollower, KafkaStorageError, and InvalidRecord for a batch that is broken.
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
    """Return (offset, timestamp) of a batch's first record at or above `offset`, by its header.

    None unless it has the append time or a single record, and none of its records is missing.
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
