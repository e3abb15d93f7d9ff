"""Fetch (API 1), versions 4-18, for consumers.

KIP-74 (the first batch is returned even if it exceeds the limits) · KIP-98 (isolation) ·
KIP-227 (sessions: `session_fetch`) · KIP-320 (leader epochs) · KIP-392 (but consumers are never
sent to a follower) · KIP-516 (topic ids) · KIP-595 (divergence) · KIP-951 (the new leader).

Replicas fetch over the peer link only. A fetch with a replica id on the client port is refused
(CVE-2018-1288), since its answer would contain records above the high watermark.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from ....replication.delayed_operations import DelayedFetch
from ....runtime.steps import Steps, run_to_end
from ....wire.acls import AclOperation, ResourceType
from ....wire.errors import InvalidRequest, KafkaError
from ....wire.framing import Buffer, RequestHeader
from ....wire.messages import fetch
from ....wire.messages.fetch import (
    OLDEST,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from ...listener.dispatch import BODY_AT_ONCE_BYTES_MAX, Api, CloseConnection, RequestContext
from ...listener.pending_answer import PendingAnswer
from ...listener.request_time import FETCH, with_throttle
from ...partitions.replica_manager import ReplicaManager
from ...security.rights import ByHandler
from ..answers import nested
from . import repeated_fetch, session_fetch
from .partition_reader import FetchLook, FetchRead, fetched
from .session_fetch import SessionFetch

PARTITIONS_AT_ONCE_MAX = 200  # about 1 ms


class _PlainFetch:
    """A fetch that names all its partitions, outside of a session."""

    __slots__ = ("_context", "_request")

    def __init__(self, context: RequestContext, request: FetchRequest) -> None:
        self._context, self._request = context, request

    @property
    def size(self) -> int:
        return sum(len(topic.partitions) for topic in self._request.topics)

    def look(self) -> FetchRead:
        return FetchRead(self._context, self._request)

    def refusal(self) -> FetchResponse | None:
        return None

    def abandoned(self) -> None:
        pass


_Asked = _PlainFetch | SessionFetch


def handle(
    context: RequestContext, header: RequestHeader, body: memoryview
) -> list[Buffer] | PendingAnswer | Coroutine[Any, Any, list[Buffer] | None]:
    """Answer when min_bytes are available, or when max_wait_ms has passed."""
    if context.broker.quotas.counts_fetched:
        context.client_id = header.client_id
        outcome = _fetch(context, header.api_version, body)
        return _throttled(context, header.client_id, outcome)
    return _fetch(context, header.api_version, body)


def _fetch(
    context: RequestContext, version: int, body: memoryview
) -> list[Buffer] | PendingAnswer | Coroutine[Any, Any, list[Buffer]]:
    if len(body) > BODY_AT_ONCE_BYTES_MAX:
        return _decode_in_slices(context, body, version)
    request = fetch.decode_request(body, version)
    _check_asker(request)
    try:
        session = session_fetch.begin(context, request, version)
        if session is not None:
            session = run_to_end(session.update())
    except KafkaError as error:
        return fetch.encode_response(session_fetch.refused(error.number), version)
    asked = session or _PlainFetch(context, request)
    if asked.size > PARTITIONS_AT_ONCE_MAX:
        return _fetch_in_slices(context, request, version, asked)
    first = asked.look()
    first.run()
    if first.awaited and request.max_wait_ms > 0:
        return _fetch_in_slices(context, request, version, asked)
    if _is_enough(first, request) or first.is_partial:
        return fetch.encode_response(run_to_end(first.answer()), version)
    waiting = _WaitingFetch(context, request, version, asked)
    waiting.wait_for_more(first)
    return waiting.pending


def _check_asker(request: FetchRequest) -> None:
    if request.replica_id >= 0:
        raise InvalidRequest("replicas fetch over the peer link, not here")


class _WaitingFetch:
    """A fetch that waits for more bytes, and reads again when bytes arrive or at its deadline.

    A fetch of few partitions is answered in the call that ends its wait. A fetch of many partitions
    waits in a coroutine (`_wait_in_slices`), which needs a task. With a task, one produce and a
    fetch that waits for it took 153-166 us of the event loop, instead of 109 us.

    The pending answer refers to this object only until it is complete. Otherwise a long wait would
    leave a reference cycle among the old objects, which are never collected (garbage_collection).
    """

    __slots__ = ("_asked", "_context", "_deadline_ms", "_request", "_version", "pending")

    def __init__(
        self, context: RequestContext, request: FetchRequest, version: int, asked: _Asked
    ) -> None:
        self._context, self._request, self._version = context, request, version
        self._asked = asked
        now_ms = context.broker.replicas.clock.monotonic_ms()
        self._deadline_ms = now_ms + request.max_wait_ms
        self.pending = PendingAnswer()

    def wait_for_more(self, look: FetchLook) -> None:
        operation = look.delayed(self._deadline_ms, self._look_again)
        replicas: ReplicaManager = self._context.broker.replicas
        replicas.wait_fetch(operation)
        asked = self._asked

        def abandon() -> None:
            replicas.purgatory.cancel(operation)
            asked.abandoned()

        self.pending.on_abandon = abandon

    def _look_again(self, _: DelayedFetch) -> None:
        if self.pending.is_done:
            return
        try:
            self._answer_or_wait()
        except Exception as error:
            self.pending.fail(error, self._refuse)
            self._asked.abandoned()

    def _refuse(self, error: KafkaError) -> list[Buffer]:
        return fetch.encode_response(run_to_end(_refusal(self._request, error)), self._version)

    def _answer_or_wait(self) -> None:
        refusal = self._asked.refusal()
        if refusal is not None:
            self.pending.complete(fetch.encode_response(refusal, self._version))
            return
        look = self._asked.look()
        look.run()
        now_ms = self._context.broker.replicas.clock.monotonic_ms()
        if _is_enough(look, self._request) or look.is_partial or now_ms >= self._deadline_ms:
            answer = run_to_end(look.answer())
            self.pending.complete(fetch.encode_response(answer, self._version))
        else:
            self.wait_for_more(look)


async def _decode_in_slices(
    context: RequestContext, body: memoryview, version: int
) -> list[Buffer]:
    work, look, deadline_ms = context.broker.work, None, None
    repeated = None
    # With an authorizer the rights may have changed, so an earlier answer cannot be repeated.
    if context.broker.authorizer is None:
        async with context.broker.compared_fetches.turn(context, len(body)):
            repeated = await work.run("Fetch", repeated_fetch.note(context, version, body))
    if repeated is not None and repeated.is_unchanged():
        deadline_ms = await repeated.wait()
        if repeated.answer is not None and repeated.is_unchanged():
            return list(repeated.answer)
    if repeated is not None and repeated.request is not None:
        request = repeated.request
        asked = await work.run("Fetch", repeated.keep(request)) or _PlainFetch(context, request)
    else:
        async with context.broker.large_fetches.turn(context, len(body)):
            request = await work.run("Fetch", fetch.decode_request_steps(body, version))
            try:
                _check_asker(request)
            except KafkaError as error:
                refusal = await work.run("Fetch", _refusal(request, error))
                return await work.run("Fetch", fetch.encode_response_steps(refusal, version))
            try:
                asked = session_fetch.begin(context, request, version)
                if asked is not None:
                    with _given_up_with_client(context, asked):
                        asked = await work.run("Fetch", asked.update())
            except KafkaError as error:
                return fetch.encode_response(session_fetch.refused(error.number), version)
            if repeated is not None and asked is None and request.max_wait_ms > 0:
                asked = await work.run("Fetch", repeated.keep(request))
            asked = asked or _PlainFetch(context, request)
            with _given_up_with_client(context, asked):
                look = asked.look()
                await work.run("Fetch", look.steps())
                if look.awaited:
                    look = None
                elif _is_enough(look, request) and not look.is_void:
                    # True if many partitions are not led here, which needs no wait.
                    return await _answer(context, version, asked, look, repeated)
    if deadline_ms is None:
        deadline_ms = context.broker.replicas.clock.monotonic_ms() + request.max_wait_ms
    return await _wait_in_slices(context, request, version, asked, look, deadline_ms, repeated)


async def _fetch_in_slices(
    context: RequestContext, request: FetchRequest, version: int, asked: _Asked
) -> list[Buffer]:
    deadline_ms = context.broker.replicas.clock.monotonic_ms() + request.max_wait_ms
    return await _wait_in_slices(context, request, version, asked, None, deadline_ms)


@contextmanager
def _given_up_with_client(context: RequestContext, asked: _Asked) -> Iterator[None]:
    """Abandon the fetch after an exception in the block, or if the client has disconnected."""
    try:
        yield
    except BaseException:
        asked.abandoned()
        raise
    if context.is_closed:
        asked.abandoned()


async def _wait_in_slices(
    context: RequestContext,
    request: FetchRequest,
    version: int,
    asked: _Asked,
    look: FetchLook | None,
    deadline_ms: int,
    repeated: "repeated_fetch.RepeatedFetch | None" = None,
) -> list[Buffer]:
    """Return the answer to a fetch of many partitions, once it has enough bytes or has expired.

    Each read takes several turns of the event loop. look: the first read, which found too few
    bytes, or None before the first read.
    """
    replicas: ReplicaManager = context.broker.replicas
    led_by_ms = min(deadline_ms, replicas.awaited.deadline_ms())
    with _given_up_with_client(context, asked):
        while True:
            if look is None:
                look = asked.look()
                await context.broker.work.run("Fetch", look.steps())
                now_ms = replicas.clock.monotonic_ms()
                if look.awaited and not look.is_void and now_ms < led_by_ms:
                    await replicas.awaited.wait(look.awaited, led_by_ms)
                    look = None
                    continue
                is_over = now_ms >= deadline_ms
                if not look.is_void and (_is_enough(look, request) or is_over):
                    return await _answer(context, version, asked, look, repeated)
            if asked.refusal() is not None:
                return await _answer(context, version, asked, look, repeated)
            if look.is_void or look.is_outdated():
                look = None
                continue
            done = asyncio.get_running_loop().create_future()
            operation = look.delayed(
                deadline_ms, lambda _, done=done: done.done() or done.set_result(None)
            )
            look = None
            replicas.wait_fetch(operation)
            try:
                await done
            finally:
                replicas.purgatory.cancel(operation)


async def _answer(
    context: RequestContext,
    version: int,
    asked: _Asked,
    look: FetchLook,
    repeated: "repeated_fetch.RepeatedFetch | None" = None,
) -> list[Buffer]:
    refusal = asked.refusal()
    if refusal is not None:
        return fetch.encode_response(refusal, version)
    answer = await context.broker.work.run("Fetch", look.answer())
    encoding = fetch.encode_response_steps(answer, version)
    encoded = await context.broker.work.run("Fetch", encoding)
    if repeated is not None:
        repeated.answered(look, encoded)
    return encoded


def _is_enough(look: FetchLook, request: FetchRequest) -> bool:
    return (
        look.must_answer
        or look.is_cut
        or look.bytes_read >= request.min_bytes
        or request.max_wait_ms <= 0
        or look.is_empty
    )


def _on_error(
    context: RequestContext, header: RequestHeader, body: memoryview, error: KafkaError
) -> list[Buffer]:
    if len(body) > BODY_AT_ONCE_BYTES_MAX:
        raise CloseConnection(f"a fetch failed: {error}")
    request = fetch.decode_request(body, header.api_version)
    return fetch.encode_response(run_to_end(_refusal(request, error)), header.api_version)


def _refusal(request: FetchRequest, error: KafkaError) -> Steps[FetchResponse]:
    def refused(topic: FetchTopic, wanted: FetchPartition) -> FetchedPartition:
        return FetchedPartition(wanted.index, error.number)

    topics = yield from nested(request.topics, refused, fetched)
    return FetchResponse(topics, error_code=error.number)


def apis() -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    versions = fetch.OLDEST, fetch.NEWEST
    rights = (ByHandler(((AclOperation.READ, ResourceType.TOPIC),)),)
    return (Api(FETCH, *versions, handle, _on_error, ends_with_client=True, rights=rights),)


async def _throttled(
    context: RequestContext,
    client_id: str | None,
    outcome: list[Buffer] | PendingAnswer | Coroutine[Any, Any, list[Buffer]],
) -> list[Buffer] | None:
    """Count the bytes of a complete answer for the quota, and set its throttle time.

    Kafka sends a throttled client an empty answer and lets it repeat the fetch. Here the records
    are sent immediately, and the connection is muted afterwards. The rate is the same.
    """
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
