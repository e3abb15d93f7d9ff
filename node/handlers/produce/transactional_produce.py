"""Produces that may have to wait before they are appended, and what comes behind one.

What is transactional is said by the batches, not by the request (CVE-2018-17196): a request with a
transactional id and plain batches is plain, one with a transactional batch and no id is refused.
"""

from ....wire.messages.produce import ProduceRequest
from ...listener.dispatch import Buffer, CloseConnection, PendingAnswer, RequestContext
from .append import append_all
from .record_checks import Verdicts
from .transactional_producer import noting_owner, producer_of, staleness
from .verification_queue import ProduceLine, unverified


def handle(
    context: RequestContext, request: ProduceRequest, version: int, verdicts: Verdicts | None
) -> list[Buffer] | PendingAnswer | None:
    """Append at once what is verified, and let everything else wait in line.

    verdicts: of the records; None when they are still to be looked at.

    Raises TransactionalIdAuthorizationFailed for a transactional batch without transactional id,
    InvalidProducerIdMapping for batches of several producers, CloseConnection for a produce that
    is late (`connection_fence`).
    """
    producer = producer_of(request, version)
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


def handle_large(context: RequestContext, body: memoryview, version: int) -> PendingAnswer:
    """Let a request of many partitions wait in line, to be taken apart there."""
    line = context.produce_line
    if line is None:
        line = context.produce_line = ProduceLine(context)
    return line.put_large(body, version)
