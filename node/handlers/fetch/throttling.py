"""Fetch under a quota: the answer says for how long its client is throttled.

Against Kafka, which sends a throttled client an empty answer and lets it ask again: here the
records go out at once, and the pause comes behind them. The rate is the same.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from ....wire.framing import Buffer
from ....wire.messages.fetch import OLDEST
from ...listener.dispatch import CloseConnection, RequestContext
from ...listener.pending_answer import PendingAnswer
from ...listener.request_time import FETCH, with_throttle


async def throttled(
    context: RequestContext,
    client_id: str | None,
    outcome: list[Buffer] | PendingAnswer | Coroutine[Any, Any, list[Buffer]],
) -> list[Buffer] | None:
    """Record the answer, when it is there, and write the throttle time into it."""
    if isinstance(outcome, PendingAnswer):
        body = await _completed(outcome)
    elif isinstance(outcome, list):
        body = outcome
    else:
        body = await outcome
    if not body:
        return body
    size_bytes = sum(map(len, body))
    throttle_ms = context.broker.quotas.fetched(context, client_id, size_bytes)
    return with_throttle(body, FETCH, OLDEST, throttle_ms)


async def _completed(pending: PendingAnswer) -> list[Buffer] | None:
    if not pending.is_done:
        done = asyncio.Event()
        pending.notify(done.set)
        try:
            await done.wait()
        except asyncio.CancelledError:
            pending.abandon()
            raise
    if pending.close_reason is not None:
        raise CloseConnection(pending.close_reason)
    return pending.buffers
