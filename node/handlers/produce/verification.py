"""The transactional producer of a request, and the batches to verify first (KIP-890).

The batches decide whether a request is transactional, not its transactional id (CVE-2018-17196). A
request with a transactional id and plain batches is plain. A transactional batch without a
transactional id is refused.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from ....storage.producers.entry import NO_OFFSET
from ....storage.producers.state import ProducerStateTable
from ....wire.errors import (
    ErrorCode,
    InvalidProducerIdMapping,
    KafkaError,
    NotEnoughReplicas,
    TransactionalIdAuthorizationFailed,
    error_for,
)
from ....wire.record_batch import TRANSACTIONAL_BIT, BatchHeader
from ...listener.dispatch import RequestContext
from ...partitions.hosted_partition import HostedPartition
from .leader_append import LeaderAppend

# From version 12 on, Produce adds its partitions to the transaction (KIP-890).
ADDS_PARTITIONS_FROM = 12
# From version 11 on, Produce clients know TRANSACTION_ABORTABLE (KIP-1050).
ABORTABLE_ERROR_FROM = 11
_COORDINATOR_IS_AWAY = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class TransactionalProducer(NamedTuple):
    """The producer of a request's transactional batches.

    adds: the request adds its partitions to the transaction (Produce 12).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds: bool


class Verification(NamedTuple):
    """The coordinator's answer for a partition, and the guard created before it was asked."""

    guard: int
    error: int


def producer_of(
    appends: Iterable[LeaderAppend], transactional_id: str | None, version: int
) -> TransactionalProducer | None:
    """Return the producer of all transactional batches, or None if no batch is transactional.

    Raises TransactionalIdAuthorizationFailed, InvalidProducerIdMapping.
    """
    producers: set[TransactionalProducer] = set()
    for append in appends:
        header = append.header
        if header is None or not header.attributes & TRANSACTIONAL_BIT:
            continue
        if transactional_id is None:
            raise TransactionalIdAuthorizationFailed
        if header.producer_id >= 0:
            adds = version >= ADDS_PARTITIONS_FROM
            producers.add(
                TransactionalProducer(
                    transactional_id, header.producer_id, header.producer_epoch, adds
                )
            )
    if not producers:
        return None
    check_one_producer(producers)
    return producers.pop()


def check_one_producer(producers: Collection[TransactionalProducer]) -> None:
    """Raise InvalidProducerIdMapping for transactional batches of several producers."""
    if len(producers) > 1:
        raise InvalidProducerIdMapping("Transactional records contained more than one producer ID")


def staleness(context: RequestContext, producer: TransactionalProducer) -> str:
    """Return the reason why this connection may no longer produce, or an empty text if it may."""
    broker = context.broker
    if producer.adds or not broker.config.transaction_connection_fence:
        return ""
    now_ms = broker.clock.monotonic_ms()
    _, producer_id, epoch, _ = producer
    if broker.connection_fence.admits(producer_id, epoch, context.connection_id, now_ms):
        return ""
    return (
        f"a produce of {producer.transactional_id!r} (producer {producer_id}, epoch {epoch}) came "
        "on a connection older than that producer's newest"
    )


def unverified(
    appends: Iterable[LeaderAppend], producer: TransactionalProducer, now_ms: int
) -> dict[HostedPartition, int]:
    """Return the partitions in which these batches open a transaction, each with its guard.

    now_ms: wall-clock time. Batches that cannot be appended here are skipped, and get their errors
    from the append.
    """
    guards: dict[HostedPartition, int] = {}
    for append in appends:
        partition, header = append.partition, append.header
        if partition is None or partition.leader is None or header is None:
            continue
        if not header.attributes & TRANSACTIONAL_BIT or header.producer_id < 0:
            continue
        state = partition.log.producer_state
        if not must_be_verified(state, header):
            continue
        guard = state.begin_verification(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            now_ms=now_ms,
            supports_epoch_bump=producer.adds,
        )
        if guard is not None:
            guards[partition] = guard
    return guards


def must_be_verified(state: ProducerStateTable, header: BatchHeader) -> bool:
    """Return whether a batch's transaction must be verified, as it may not be open here.

    A fenced producer is refused by the partition itself, without a verification (KAFKA-19690).
    """
    entry = state.entry(header.producer_id)
    if entry is None:
        return True
    if header.producer_epoch == entry.epoch:
        return entry.transaction_first_offset == NO_OFFSET
    return header.producer_epoch > entry.epoch


def client_error(error: int, version: int) -> KafkaError:
    """Return the error of a failed verification for a client of this Produce version.

    A fenced producer gets INVALID_PRODUCER_EPOCH, as for any Produce request. Versions before 11 do
    not know TRANSACTION_ABORTABLE, versions before 12 do not retry after CONCURRENT_TRANSACTIONS,
    and no version retries after coordinator errors. NOT_ENOUGH_REPLICAS makes all versions retry,
    without a metadata refresh.
    """
    if error == ErrorCode.PRODUCER_FENCED:
        return error_for(ErrorCode.INVALID_PRODUCER_EPOCH)
    if error == ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_ERROR_FROM:
        error = ErrorCode.INVALID_TXN_STATE
    if error == ErrorCode.INVALID_TXN_STATE:
        return error_for(error, "Partition was not added to the transaction")
    if error in _COORDINATOR_IS_AWAY or (
        error == ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_PARTITIONS_FROM
    ):
        return NotEnoughReplicas(
            "Unable to verify the partition has been added to the transaction. Underlying error: "
            f"{ErrorCode(error).name}"
        )
    return error_for(error)
