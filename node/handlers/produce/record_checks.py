"""Looking into the records of a produce, where its topic asks for it (KIP-467).

On compacted topics each record needs a key, and with oncelog.record.validation=full it must be
readable. A request with few records is checked where it is appended. One with many waits in the
queue of its connection while they are gone through in slices, so that others go on; what comes
behind it on its connection waits, as the order of appends demands.
"""

from collections.abc import Callable, Iterable

from ....storage.batch_checks import TimestampOutOfRange
from ....storage.log_config import LogConfig
from ....wire.errors import InvalidRecord, KafkaError
from ....wire.record_batch import HEADER_BYTES, BatchHeader
from ....wire.record_walk import ITEMS_PER_STEP, RecordsWithoutKey, records_without_key, timestamps
from ....wire.steps import Steps
from ...listener.dispatch import RequestContext
from ...partitions.batch_contents import contents, contents_at_once
from ...partitions.hosted_partition import HostedPartition
from .leader_append import LeaderAppend, RecordError

AT_ONCE_ITEMS_MAX = 250  # records, and their headers, of a request: about 0.3 ms
AT_ONCE_BYTES_MAX = 64 * 1024  # as they came, or unfolded
SHOWN_RECORDS = 3


def check_at_once(appends: Iterable[LeaderAppend]) -> bool:
    """Look at the records of each batch that needs it; False when that takes long."""
    items = size_bytes = 0
    for append in appends:
        partition = append.partition
        if partition is None or not partition.log.config.needs_every_record:
            continue
        batch, header = _whole_batch(append)
        if header is None:
            continue
        size_bytes += len(batch)
        if items + header.record_count > AT_ONCE_ITEMS_MAX or size_bytes > AT_ONCE_BYTES_MAX:
            return False
        error = None
        try:
            data = contents_at_once(batch, header)
            if data is None:
                return False
            size_bytes += len(data) - (len(batch) - HEADER_BYTES)  # a little can unfold to much
            next(_check(data, header, partition))
            return False  # many headers
        except StopIteration as end:
            items += end.value
        except KafkaError as failure:
            items += ITEMS_PER_STEP  # at most, before the refusal
            error = RecordError.of(failure)
        append.records_checked, append.record_error = True, error
    return True


async def check_in_slices(
    context: RequestContext, appends: Iterable[LeaderAppend], is_abandoned: Callable[[], bool]
) -> None:
    """The same, however long it takes, but no longer than somebody waits for it.

    Else a client that times out and sends it again would make the work grow for ever.
    """
    broker = context.broker
    for append in appends:
        partition = append.partition
        if partition is None or not partition.log.config.needs_every_record:
            continue
        batch, header = _whole_batch(append)
        if header is None:
            continue
        error = None
        try:
            async with broker.unfolded:
                if is_abandoned():
                    break
                data = await contents(batch, header)
                steps = _unless(is_abandoned, _check(data, header, partition))
                await broker.work.run(f"records produced to {partition}", steps)
        except KafkaError as failure:
            error = RecordError.of(failure)
        append.records_checked, append.record_error = True, error


def _unless(is_abandoned: Callable[[], bool], steps: Steps[int]) -> Steps[None]:
    for _ in steps:
        if is_abandoned():
            return
        yield


def name_records_out_of_range(
    error: TimestampOutOfRange, append: LeaderAppend, records_max: int
) -> int:
    """Say of a batch which records are too old or too new, if it has `records_max` or fewer.

    Returns how many it looked at.
    """
    batch, header = _whole_batch(append)
    if header is None or header.record_count > records_max:
        return 0
    try:
        data = contents_at_once(batch, header)
        if data is not None:
            error.record_errors = [
                (
                    index,
                    f"Timestamp {timestamp} of message with offset {index} is out of range. The "
                    f"timestamp should be within [{error.earliest}, {error.latest}]",
                )
                for index, timestamp in enumerate(timestamps(data, header))
                if not error.earliest <= timestamp <= error.latest
            ]
    except KafkaError:  # nothing can be named in what cannot be read
        pass
    return max(1, header.record_count)


def _whole_batch(append: LeaderAppend) -> tuple[memoryview, BatchHeader | None]:
    """The batch and its header; None of what is refused anyway."""
    batch, header = memoryview(append.records or b""), append.header
    return batch, header if header is not None and header.size_bytes == len(batch) else None


def _check(data: bytes, header: BatchHeader, partition: HostedPartition) -> Steps[int]:
    """Returns how many items it has looked through."""
    config: LogConfig = partition.log.config
    without_key = yield from records_without_key(data, header)
    if config.is_compacted and without_key.total:
        reason = f"Compacted topic cannot accept message without key in topic partition {partition}"
        raise rejected(reason, without_key)
    return without_key.item_count


def rejected(reason: str, records: RecordsWithoutKey) -> KafkaError:
    """Kafka's words for a batch with such records in it."""
    shown = ", ".join(
        f"RecordError(batchIndex={index}, message='{reason}')"
        for index in records.places[:SHOWN_RECORDS]
    )
    error = InvalidRecord(
        f"One or more records have been rejected due to {records.total} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
    error.record_errors = [(index, reason) for index in records.places]
    return error
