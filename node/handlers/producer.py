"""Producer ids.

InitProducerId 0-5   KIP-98; v3 carries the producer's id and epoch (KIP-360), v4 may answer
                     PRODUCER_FENCED (KIP-588), v5 TRANSACTION_ABORTABLE (KIP-890).

An idempotent producer gets a fresh id with epoch 0 from any broker, whatever it had before, as in
Kafka. Simplification: there is no transaction coordinator yet, so a transactional id is told to
look for one (COORDINATOR_NOT_AVAILABLE).
"""

from typing import Any

from ...wire.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidRequest,
    KafkaError,
)
from ...wire.framing import RequestHeader
from ..dispatch import Api, RequestContext, Values, control_api

PATIENCE_MS = 1000  # then the client is told to come again: no block of ids could be had
NONE = -1


async def init_producer_id(context: RequestContext, header: RequestHeader, request: Any) -> Values:
    """A producer id for a new session."""
    has_id = getattr(request, "producer_id", NONE) != NONE
    has_epoch = getattr(request, "producer_epoch", NONE) != NONE
    if has_id != has_epoch:
        raise InvalidRequest("A producer id and its epoch are given together or not at all.")
    if request.transactional_id == "":
        raise InvalidRequest("A transactional id cannot be empty.")
    if request.transactional_id is not None:
        raise CoordinatorNotAvailable
    broker = context.broker
    try:
        producer_id = await broker.controller.next_producer_id(
            broker.broker_epoch, timeout_ms=PATIENCE_MS
        )
    except KafkaError as error:
        raise CoordinatorLoadInProgress(f"No producer id yet: {error}") from error
    return {"producer_id": producer_id, "producer_epoch": 0}


def _refusal(request: Any, error: KafkaError) -> Values:
    return {"error_code": error.number, "producer_id": NONE, "producer_epoch": NONE}


def apis() -> tuple[Api, ...]:
    """The rows of this file."""
    return (control_api(22, (0, 5), init_producer_id, _refusal),)
