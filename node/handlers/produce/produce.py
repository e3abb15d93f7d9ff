"""Produce (API 0), versions 3-12; advertised from 0 (KAFKA-18659), a real v0-2 closes.

KIP-98 (idempotence, transactions) · KIP-467 (record errors) · KIP-890 (transactions are verified,
from version 12 on partitions are added to them) · KIP-951 (the new leader in the answer).
Version 13 names topics by id.

acks=0 has no answer: an error closes the connection, so that the client looks again. acks=all is
answered when the high watermark has passed the batch; a duplicate waits for the same.

A transactional producer's requests go another way (`transactional_produce`), and so do requests
whose many records must be looked at (`record_checks`), and what comes behind one that waits on its
connection, and so do those of many partitions (`large_produce`); everything else is appended here
and now.
"""

from ....wire.errors import InvalidRequiredAcks, KafkaError
from ....wire.framing import RequestHeader
from ....wire.messages import produce
from ....wire.messages.large_produce import PARTITIONS_MAX
from ....wire.messages.produce import TooManyElements
from ...listener.dispatch import Api, Buffer, PendingAnswer, RequestContext
from . import transactional_produce
from .append import append_all, refuse_all
from .record_checks import check_at_once

PRODUCE = 0
ELEMENTS_AT_ONCE_MAX = PARTITIONS_MAX + 3  # a topic, and compact arrays count one more


def handle(
    context: RequestContext, header: RequestHeader, body: memoryview
) -> list[Buffer] | PendingAnswer | None:
    """Append every batch, then answer at once or when the replicas have them."""
    version = header.api_version
    try:
        request = produce.decode_request(body, version, ELEMENTS_AT_ONCE_MAX)
    except TooManyElements:
        return transactional_produce.handle_large(context, body, version)
    if request.acks not in (-1, 0, 1):
        return refuse_all(request, version, InvalidRequiredAcks())
    verdicts = check_at_once(context.broker.replicas, request)
    if request.transactional_id is not None or context.produce_line is not None or verdicts is None:
        return transactional_produce.handle(context, request, version, verdicts)
    return append_all(context, request, version, verdicts)


def _on_error(
    context: RequestContext, header: RequestHeader, body: memoryview, error: KafkaError
) -> list[Buffer] | PendingAnswer | None:
    request = produce.decode_request(body, header.api_version)
    return refuse_all(request, header.api_version, error)


def apis() -> tuple[Api, ...]:
    """The rows of the dispatch table."""
    return (
        Api(
            PRODUCE,
            produce.OLDEST,
            produce.NEWEST,
            handle,
            _on_error,
            is_pipelined=True,
            advertised_from=0,
        ),
    )
