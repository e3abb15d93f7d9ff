"""Looking into the records of a produce, where its topic asks for it (KIP-467).

On compacted topics each record needs a key, and with oncelog.record.validation=full it must be
readable. A request with few records is judged where it is appended. One with many stands in line
(`produce_line`) while they are gone through in slices, so that it keeps nobody else; what comes
behind it on its connection waits, as the order of appends demands.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...storage.batch_checks import TimestampOutOfRange
from ...storage.log_config import LogConfig
from ...wire.errors import InvalidRecord, KafkaError, NotLeaderOrFollower, error_for
from ...wire.messages.produce import ProducePartition, ProduceRequest
from ...wire.record_batch import HEADER_BYTES, BatchHeader, Buffer, decode_header
from ...wire.record_walk import records_without_key
from ...wire.records import decode_batch
from ...wire.steps import Steps, run_to_end
from ..batch_contents import contents, contents_at_once
from ..dispatch import RequestContext
from ..hosted_partition import HostedPartition
from ..replica_manager import ReplicaManager

AT_ONCE_RECORDS_MAX = 250  # of a request; about 0.3 ms, and 8 MB to unfold at worst
AT_ONCE_BYTES_MAX = 64 * 1024
NAMED_RECORDS_MAX = 10_000  # in one answer
SHOWN_RECORDS = 3


class Refusal(NamedTuple):
    """What an error said; an error that is kept would keep the frames it was raised in."""

    number: int
    message: str
    record_errors: Sequence[tuple[int, str | None]]

    @classmethod
    def of(cls, error: KafkaError) -> "Refusal":
        """What it says."""
        return cls(error.number, str(error), error.record_errors)


# By the identity of the request's ProducePartition; None: nothing is wrong.
Verdicts = Mapping[int, Refusal | None]
NONE_CHECKED: Verdicts = {}


def check_at_once(replicas: ReplicaManager, request: ProduceRequest) -> Verdicts | None:
    """What is wrong with the records of each partition; None when it takes long to say."""
    verdicts = NONE_CHECKED
    records = size_bytes = 0
    for partition, wanted, header in _to_be_checked(replicas, request):
        batch = memoryview(wanted.records or b"")
        records += header.record_count
        size_bytes += len(batch)
        if records > AT_ONCE_RECORDS_MAX or size_bytes > AT_ONCE_BYTES_MAX:
            return None
        refusal = None
        try:
            data = contents_at_once(batch, header)
            if data is None:
                return None
            run_to_end(_check(data, header, partition))
        except KafkaError as error:
            refusal = Refusal.of(error)
        verdicts = {**verdicts, id(wanted): refusal}
    return verdicts


async def check_in_slices(context: RequestContext, request: ProduceRequest) -> Verdicts:
    """The same, however long it takes."""
    broker = context.broker
    verdicts: dict[int, Refusal | None] = {}
    for partition, wanted, header in list(_to_be_checked(broker.replicas, request)):
        refusal = None
        try:
            async with broker.unfolded:
                data = await contents(memoryview(wanted.records or b""), header)
                await broker.work.run(
                    f"records produced to {partition}", _check(data, header, partition)
                )
        except KafkaError as error:
            refusal = Refusal.of(error)
        verdicts[id(wanted)] = refusal
    return verdicts


def raise_refusal(partition: HostedPartition, wanted: ProducePartition, verdicts: Verdicts) -> None:
    """Raise what is wrong with the records of a batch."""
    if id(wanted) not in verdicts:
        raise NotLeaderOrFollower(f"{partition} has changed since its records were looked at")
    refusal = verdicts[id(wanted)]
    if refusal is not None:
        error = error_for(refusal.number, refusal.message)
        error.record_errors = refusal.record_errors
        raise error


def name_records_out_of_range(error: TimestampOutOfRange, wanted: ProducePartition) -> None:
    """Say of a batch with few records which of them are too old or too new."""
    assert wanted.records is not None
    batch = memoryview(wanted.records)
    header = decode_header(batch)
    try:
        is_short = header.record_count <= AT_ONCE_RECORDS_MAX
        if not is_short or contents_at_once(batch, header) is None:
            return
        records = decode_batch(batch)
    except KafkaError:  # nothing can be named in what cannot be read
        return
    error.record_errors = [
        (
            index,
            f"Timestamp {record.timestamp} of message with offset {index} is out of range. The "
            f"timestamp should be within [{error.earliest}, {error.latest}]",
        )
        for index, record in enumerate(records)
        if not error.earliest <= record.timestamp <= error.latest
    ]


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


def _check(data: bytes, header: BatchHeader, partition: HostedPartition) -> Steps[None]:
    config: LogConfig = partition.log.config
    without_key = yield from records_without_key(data, header)
    if config.is_compacted and without_key:
        reason = f"Compacted topic cannot accept message without key in topic partition {partition}"
        raise rejected(reason, without_key)


def rejected(reason: str, records: list[int]) -> KafkaError:
    """Kafka's words for a batch with such records in it."""
    shown = ", ".join(
        f"RecordError(batchIndex={index}, message='{reason}')" for index in records[:SHOWN_RECORDS]
    )
    error = InvalidRecord(
        f"One or more records have been rejected due to {len(records)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
    error.record_errors = [(index, reason) for index in records[:NAMED_RECORDS_MAX]]
    return error
