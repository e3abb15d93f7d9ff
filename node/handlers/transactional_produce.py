"""Produces that may have to wait before they are appended, and what comes behind one.

What is transactional is said by the batches, not by the request (CVE-2018-17196): a request with a
transactional id and plain batches is plain, one with a transactional batch and no id is refused.
"""

from ...wire.errors import InvalidProducerIdMapping, TransactionalIdAuthorizationFailed
from ...wire.messages.produce import ProduceRequest
from ..dispatch import Buffer, CloseConnection, PendingAnswer, RequestContext
from .produce_append import append_all
from .produce_line import (
    ADDS_PARTITIONS_FROM,
    ProduceLine,
    Producer,
    noting_owner,
    staleness,
    transactional_header,
    unverified,
)
from .record_checks import Verdicts


def handle(
    context: RequestContext, request: ProduceRequest, version: int, verdicts: Verdicts | None
) -> list[Buffer] | PendingAnswer | None:
    """Append at once what is verified, and let everything else wait in line.

    verdicts: of the records; None when they are still to be looked at.

    Raises TransactionalIdAuthorizationFailed for a transactional batch without transactional id,
    InvalidProducerIdMapping for batches of several producers, CloseConnection for a produce that
    is late (`connection_fence`).
    """
    producer = _producer_of(request, version)
    if producer is not None and (stale := staleness(context, producer)):
        raise CloseConnection(stale)
    line = context.produce_line
    if line is None and verdicts is not None:
        if producer is None:
            return append_all(context, request, version, verdicts)
        if not unverified(context, request, producer):
            append = noting_owner(context.broker.replicas.append, producer)
            return append_all(context, request, version, verdicts, append)
    if line is None:
        line = context.produce_line = ProduceLine(context)
    return line.put(request, version, producer, verdicts)


def _producer_of(request: ProduceRequest, version: int) -> Producer | None:
    """The one producer of all transactional batches, None when there is no such batch."""
    producers: set[tuple[int, int]] = set()
    for topic in request.topics:
        for partition in topic.partitions:
            header = transactional_header(partition.records)
            if header is None:
                continue
            if request.transactional_id is None:
                raise TransactionalIdAuthorizationFailed
            if header.producer_id >= 0:
                producers.add((header.producer_id, header.producer_epoch))
    if len(producers) > 1:
        raise InvalidProducerIdMapping("Transactional records contained more than one producer ID")
    if not producers:
        return None
    assert request.transactional_id is not None
    ((producer_id, epoch),) = producers
    adds = version >= ADDS_PARTITIONS_FROM
    return Producer(request.transactional_id, producer_id, epoch, adds)
