"""The checks of a produce request's records that its topic or the batch's header requires.

A batch's header is accepted if it is plausible, or if its records confirm it (`claims_too_much`).
Topics with oncelog.record.validation or compaction (KIP-467) require more. A request with few
records is checked when it is appended. A request with many records waits in the queue of its
connection while its records are checked in slices, so that other connections are served. Later
requests of its connection wait, to preserve the order of appends.
"""

from collections.abc import Callable, Iterable

from ....runtime.steps import Steps
from ....storage.batch_checks import TimestampOutOfRange, claims_too_much
from ....storage.log_config import RecordCheck
from ....wire.errors import InvalidRecord, KafkaError
from ....wire.record_batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    LENGTH_COUNTS_FROM,
    BatchHeader,
)
from ....wire.record_walk import (
    ITEMS_PER_STEP,
    SKELETONS_PER_STEP,
    RecordsWithoutKey,
    WalkedRecords,
    records_without_key,
    timestamps,
    walk_skeleton,
)
from ...listener.dispatch import RequestContext
from ...partitions.batch_contents import contents, contents_at_once
from ...partitions.hosted_partition import HostedPartition
from .leader_append import LeaderAppend, RecordError

SKELETONS_AT_ONCE_MAX = SKELETONS_PER_STEP  # the limit of records in a request, about 0.5 ms
AT_ONCE_ITEMS_MAX = 250  # the limit of records and headers that are read in full, about 0.3 ms
# The limit of copied or decompressed bytes, before or after decompression.
AT_ONCE_BYTES_MAX = 64 * 1024
SHOWN_RECORDS = 3
_BATCH, _SKELETON = RecordCheck.BATCH, RecordCheck.SKELETON


def check_at_once(appends: Iterable[LeaderAppend]) -> bool:
    """Check the records of each batch that needs a check, and return True.

    Returns False if the checks would take too long. The caller then uses `check_in_slices`.
    """
    skeletons = items = size_bytes = 0
    for append in appends:
        check, header = _needed_check(append), append.header
        if not check or header is None:
            append.record_check = check
            continue
        batch = memoryview(append.records or b"")
        count = header.record_count
        if count > 0:  # a negative count is refused, and must not reduce the sum
            skeletons += count
        error = None
        try:
            if check == _SKELETON and not header.attributes & COMPRESSION_MASK:
                if skeletons > SKELETONS_AT_ONCE_MAX:
                    return False
                next(walk_skeleton(batch[HEADER_BYTES:], header))
            else:
                items += count if check > _SKELETON and count > 0 else 0
                size_bytes += len(batch)
                if items > AT_ONCE_ITEMS_MAX or size_bytes > AT_ONCE_BYTES_MAX:
                    return False
                data = contents_at_once(batch, header)
                if data is None or skeletons > SKELETONS_AT_ONCE_MAX:
                    return False
                # The bytes added by decompression.
                size_bytes += len(data) - (len(batch) - HEADER_BYTES)
                next(_steps(data, header, check, append.partition))
            return False  # a record has many headers
        except StopIteration as end:
            walked: WalkedRecords = end.value
            append.walked = walked
            items += walked.item_count
        except KafkaError as failure:
            items += ITEMS_PER_STEP  # the upper bound of items read before the error
            error = RecordError.of(failure)
        append.record_check, append.record_error = check, error
    return True


async def check_in_slices(
    context: RequestContext, appends: Iterable[LeaderAppend], is_abandoned: Callable[[], bool]
) -> None:
    """Check the records in slices.

    The checks end when the request is abandoned. Otherwise a client that times out and retries
    would add work without a limit.
    """
    broker = context.broker
    for append in appends:
        check, header = _needed_check(append), append.header
        if not check or header is None:
            append.record_check = check
            continue
        batch = memoryview(append.records or b"")
        name, error = f"records produced to {append.partition}", None
        try:
            if check == _SKELETON and not header.attributes & COMPRESSION_MASK:
                steps = walk_skeleton(batch[HEADER_BYTES:], header)
                append.walked = await broker.work.run(name, _unless(is_abandoned, steps))
            else:
                async with broker.unfolded:
                    if is_abandoned():
                        break
                    data = await contents(batch, header)
                    steps = _steps(data, header, check, append.partition)
                    append.walked = await broker.work.run(name, _unless(is_abandoned, steps))
        except KafkaError as failure:
            error = RecordError.of(failure)
        append.record_check, append.record_error = check, error


def _needed_check(append: LeaderAppend) -> RecordCheck:
    """Return the required level of the check, which is none for bytes with a refused header."""
    header, partition = append.header, append.partition
    if header is None or header.batch_length + LENGTH_COUNTS_FROM != len(append.records or b""):
        return _BATCH
    check = _BATCH if partition is None else partition.log.config.record_check
    return _SKELETON if check == _BATCH and claims_too_much(header) else check


def _unless(
    is_abandoned: Callable[[], bool], steps: Steps[WalkedRecords]
) -> Steps[WalkedRecords | None]:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        if is_abandoned():
            return None
        yield


def name_records_out_of_range(
    error: TimestampOutOfRange, append: LeaderAppend, records_max: int
) -> int:
    """Add to the error the records of a batch that are too old or too new.

    Batches with more than `records_max` records are skipped. Returns the number of checked records.
    """
    batch, header = memoryview(append.records or b""), append.header
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
    except KafkaError:  # unreadable records have no timestamps
        pass
    return max(1, header.record_count)


def _steps(
    data: bytes, header: BatchHeader, check: RecordCheck, partition: HostedPartition | None
) -> Steps[WalkedRecords]:
    """Check uncompressed records in steps."""
    walked = yield from walk_skeleton(data, header)
    if check == _SKELETON:
        return walked
    without_key = yield from records_without_key(data, header)
    if check == RecordCheck.KEYS and without_key.total:
        reason = f"Compacted topic cannot accept message without key in topic partition {partition}"
        raise rejected(reason, without_key)
    return walked._replace(item_count=without_key.item_count)


def rejected(reason: str, records: RecordsWithoutKey) -> KafkaError:
    """Return Kafka's error for a batch with rejected records."""
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
