"""Produce (API 0), versions 3-13.

Versions 0-2 are advertised (KAFKA-18659), but a request of these versions closes the connection.

KIP-98 (idempotence, transactions) · KIP-467 (record errors) · KIP-890 (transactions are verified;
from version 12 on, partitions are added to them) · KIP-951 (the new leader in the answer) ·
KIP-516 (version 13 names topics by id).

acks=0 has no answer, and an error closes the connection, so that the client refreshes its metadata.
acks=all is answered when the high watermark has passed the batch. A duplicate batch is not appended
again, and is answered when the high watermark has passed its first copy.

A request that need not wait is decoded, checked and appended here, in one turn of the event loop.
Other requests wait in a queue (`queue`): for the opening of a log, for a verification, for checks
of many records, or because they have many partitions. All later requests of the same connection
wait behind them.
"""

from ....wire.errors import InvalidRequiredAcks, KafkaError
from ....wire.framing import RequestHeader
from ....wire.messages import produce
from ....wire.messages.large_produce import PARTITIONS_MAX
from ....wire.messages.produce import TooManyElements
from ...listener.dispatch import Api, CloseConnection, RequestContext
from .operation import Outcome, ProduceOperation
from .permissions import RIGHTS, check_transactional
from .queue import ProduceQueue
from .record_checks import check_at_once
from .verification import producer_of, staleness

PRODUCE = 0
# A topic counts as one, and the length of a compact array is higher by one.
ELEMENTS_AT_ONCE_MAX = PARTITIONS_MAX + 3


def handle(context: RequestContext, header: RequestHeader, body: memoryview) -> Outcome:
    """Append every batch. Answer immediately, or when the replicas have the batches.

    Raises TransactionalIdAuthorizationFailed for a transactional batch without a transactional id,
    InvalidProducerIdMapping for batches of several producers, and CloseConnection for a late
    request (`connection_fence`).
    """
    queue, version = context.produce_queue, header.api_version
    assert queue is None or isinstance(queue, ProduceQueue)
    throttle_ms = 0
    if context.broker.quotas.counts_produced:
        size_bytes = header.body_offset + len(body)
        throttle_ms = context.broker.quotas.produced(context, header.client_id, size_bytes)
    try:
        request = produce.decode_request(body, version, ELEMENTS_AT_ONCE_MAX)
    except TooManyElements:
        return (queue or ProduceQueue(context)).put_large(body, version, throttle_ms)
    operation = ProduceOperation(context, request, version)
    operation.response.throttle_time_ms = throttle_ms
    if request.acks not in (-1, 0, 1):
        return operation.refuse(InvalidRequiredAcks())
    producer = operation.producer = producer_of(
        operation.appends, request.transactional_id, version
    )
    if context.broker.authorizer is not None:
        check_transactional(context, producer)
    if producer is not None and (stale := staleness(context, producer)):
        raise CloseConnection(stale)
    if not (operation.is_unled and operation.is_awaited()):
        operation.records_checked = check_at_once(operation.appends)
    is_next = queue is None and operation.records_checked
    if is_next and (producer is None or not operation.unverified()):
        return operation.append()
    return (queue or ProduceQueue(context)).put(operation)


def _on_error(
    context: RequestContext, header: RequestHeader, body: memoryview, error: KafkaError
) -> Outcome:
    request = produce.decode_request(body, header.api_version)
    return ProduceOperation(context, request, header.api_version).refuse(error)


def apis() -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    return (
        Api(
            PRODUCE,
            produce.OLDEST,
            produce.NEWEST,
            handle,
            _on_error,
            is_pipelined=True,
            advertised_from=0,
            rights=RIGHTS,
        ),
    )
