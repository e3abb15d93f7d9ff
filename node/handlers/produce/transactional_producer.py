"""Whose transactional batches a produce carries, and whether they come too late."""

from collections.abc import Collection
from typing import NamedTuple

from ....storage.partition_log import AppendInfo
from ....wire.errors import InvalidProducerIdMapping, KafkaError, TransactionalIdAuthorizationFailed
from ....wire.identifiers import Identity
from ....wire.messages.produce import ProduceRequest
from ....wire.record_batch import TRANSACTIONAL_BIT, BatchHeader, Buffer, decode_header
from ...listener.dispatch import RequestContext
from ...partitions.hosted_partition import HostedPartition
from .append import Append

ADDS_PARTITIONS_FROM = 12  # Produce 12 adds its partitions to the transaction (KIP-890)


class Producer(NamedTuple):
    """Whose transactional batches a request carries. adds: see Produce 12."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds: bool


def producer_of(request: ProduceRequest, version: int) -> Producer | None:
    """The one producer of all transactional batches, None when there is no such batch."""
    producers: set[Identity] = set()
    for topic in request.topics:
        for partition in topic.partitions:
            header = transactional_header(partition.records)
            if header is None:
                continue
            if request.transactional_id is None:
                raise TransactionalIdAuthorizationFailed
            if header.producer_id >= 0:
                producers.add((header.producer_id, header.producer_epoch))
    check_one_producer(producers)
    if not producers:
        return None
    assert request.transactional_id is not None
    ((producer_id, epoch),) = producers
    adds = version >= ADDS_PARTITIONS_FROM
    return Producer(request.transactional_id, producer_id, epoch, adds)


def check_one_producer(producers: Collection[object]) -> None:
    """Raise InvalidProducerIdMapping for transactional batches of several producers."""
    if len(producers) > 1:
        raise InvalidProducerIdMapping("Transactional records contained more than one producer ID")


def transactional_header(records: Buffer | None) -> BatchHeader | None:
    """The header of a transactional batch, None of anything else."""
    if records is None:
        return None
    try:
        header = decode_header(records)
    except KafkaError:
        return None
    return header if header.attributes & TRANSACTIONAL_BIT else None


def staleness(context: RequestContext, producer: Producer) -> str:
    """Why this connection may not produce for this producer any more; empty if it may."""
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


def noting_owner(append: Append, producer: Producer) -> Append:
    """An append that remembers whose transaction is open then (`hanging_transactions`)."""

    def noting(
        partition: HostedPartition, records: memoryview, header: BatchHeader, acks: int
    ) -> AppendInfo:
        info = append(partition, records, header, acks)
        if header.attributes & TRANSACTIONAL_BIT:
            partition.transactional_ids[header.producer_id] = producer.transactional_id
        return info

    return noting
