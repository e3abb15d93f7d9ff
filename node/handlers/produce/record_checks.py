"""Looking into the records of a produce, where its topic asks for it (KIP-467).

On compacted topics each record needs a key, and with oncelog.record.validation=full it must be
readable. A request with few records is judged where it is appended. One with many stands in line
(`produce_line`) while they are gone through in slices, so that it keeps nobody else; what comes
behind it on its connection waits, as the order of appends demands.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ....storage.batch_checks import TimestampOutOfRange
from ....storage.log_config import LogConfig
from ....wire.errors import InvalidRecord, KafkaError, NotLeaderOrFollower, error_for
from ....wire.messages.produce import ProducePartition, ProduceRequest
from ....wire.record_batch import HEADER_BYTES, BatchHeader, Buffer, decode_header
from ....wire.record_walk import ITEMS_PER_STEP, RecordsWithoutKey, records_without_key, timestamps
from ....wire.steps import Steps
from ...listener.dispatch import RequestContext
from ...partitions.batch_contents import contents, contents_at_once
from ...partitions.hosted_partition import HostedPartition
from ...partitions.replica_manager import ReplicaManager

AT_ONCE_ITEMS_MAX = 250  # records, and their headers, of a request: about 0.3 ms
AT_ONCE_BYTES_MAX = 64 * 1024  # as they came, or unfolded
SHOWN_RECORDS = 3


class Refusal(NamedTuple):
    """What an error said; an error that is kept would keep the frames it was raised in."""

    number: int
    message: str
    record_errors: Sequence[tuple[int, str | None]]

    @classmethod
    def of(cls, error: KafkaError) -> "Refusal":
        return cls(error.number, str(error), error.record_errors)


# By the identity of the request's ProducePartition; None: nothing is wrong.
Verdicts = Mapping[int, Refusal | None]
NONE_CHECKED: Verdicts = {}


def check_at_once(replicas: ReplicaManager, request: ProduceRequest) -> Verdicts | None:
    """What is wrong with the records of each partition; None when it takes long to say."""
    verdicts = NONE_CHECKED
    items = size_bytes = 0
    for partition, wanted, header in _to_be_checked(replicas, request):
        batch = memoryview(wanted.records or b"")
        size_bytes += len(batch)
        if items + header.record_count > AT_ONCE_ITEMS_MAX or size_bytes > AT_ONCE_BYTES_MAX:
            return None
        refusal = None
        try:
            data = contents_at_once(batch, header)
            if data is None:
                return None
            size_bytes += len(data) - (len(batch) - HEADER_BYTES)  # a little can unfold to much
            next(_check(data, header, partition))
            return None  # many headers
        except StopIteration as end:
            items += end.value
        except KafkaError as error:
            items += ITEMS_PER_STEP  # at most, before the refusal
            refusal = Refusal.of(error)
        verdicts = {**verdicts, id(wanted): refusal}
    return verdicts


async def check_in_slices(
    context: RequestContext, request: ProduceRequest, is_abandoned: Callable[[], bool]
) -> Verdicts:
    """The same, however long it takes, but no longer than somebody waits for it.

    Else a client that times out and sends it again would make the work grow for ever.
    """
    broker = context.broker
    verdicts: dict[int, Refusal | None] = {}
    for partition, wanted, header in list(_to_be_checked(broker.replicas, request)):
        refusal = None
        try:
            async with broker.unfolded:
                if is_abandoned():
                    break
                data = await contents(memoryview(wanted.records or b""), header)
                steps = _unless(is_abandoned, _check(data, header, partition))
                await broker.work.run(f"records produced to {partition}", steps)
        except KafkaError as error:
            refusal = Refusal.of(error)
        verdicts[id(wanted)] = refusal
    return verdicts


def _unless(is_abandoned: Callable[[], bool], steps: Steps[int]) -> Steps[None]:
    for _ in steps:
        if is_abandoned():
            return
        yield


def raise_refusal(partition: HostedPartition, wanted: ProducePartition, verdicts: Verdicts) -> None:
    """Raise what is wrong with the records of a batch."""
    if id(wanted) not in verdicts:
        raise NotLeaderOrFollower(f"{partition} has changed since its records were looked at")
    refusal = verdicts[id(wanted)]
    if refusal is not None:
        error = error_for(refusal.number, refusal.message)
        error.record_errors = refusal.record_errors
        raise error


def name_records_out_of_range(
    error: TimestampOutOfRange, wanted: ProducePartition, records_max: int
) -> int:
    """Say of a batch which records are too old or too new, if it has `records_max` or fewer.

    Returns how many it looked at.
    """
    assert wanted.records is not None
    batch = memoryview(wanted.records)
    header = decode_header(batch)
    if header.record_count > records_max:
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


def _to_be_checked(
    replicas: ReplicaManager, request: ProduceRequest
) -> Iterator[tuple[HostedPartition, ProducePartition, BatchHeader]]:
    for topic in request.topics:
        for wanted in topic.partitions:
            if topic.topic_id is not None:
                partition = replicas.get_by_id((topic.topic_id, wanted.index))
            else:
                partition = replicas.get(topic.name or "", wanted.index)
            if partition is not None and partition.log.config.needs_every_record:
                header = _whole_batch(wanted.records)
                if header is not None:
                    yield partition, wanted, header


def _whole_batch(records: Buffer | None) -> BatchHeader | None:
    """The header; None of what is refused anyway."""
    if records is None or len(records) < HEADER_BYTES:
        return None
    try:
        header = decode_header(records)
    except KafkaError:
        return None
    return header if header.size_bytes == len(records) else None


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
