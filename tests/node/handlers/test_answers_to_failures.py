"""Test that each request is answered if any exception is raised while it is handled.

For all APIs of the dispatch table except Produce and Fetch, an exception is thrown into each await
of a request's coroutine, one after the other. For Produce and Fetch, it is thrown into each
function that continues a waiting request.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from oncelog.node.handlers.api_table import served_apis
from oncelog.node.handlers.produce import queue
from oncelog.node.handlers.produce.record_checks import AT_ONCE_ITEMS_MAX
from oncelog.node.listener import dispatch
from oncelog.node.listener.dispatch import Api, CloseConnection, Dispatcher, RequestContext
from oncelog.node.listener.pending_answer import PendingAnswer
from oncelog.node.partitions.replica_manager import ReplicaManager
from oncelog.replication.delayed_operations import DelayedFetch, DelayedProduce
from oncelog.wire.errors import ErrorCode
from oncelog.wire.framing import encode_request_header
from oncelog.wire.messages import fetch, produce
from oncelog.wire.messages.apis import API_NAMES
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from oncelog.wire.records import Record, encode_batch

from ...awaiting import until
from ..fake_broker import FETCH
from ..leading_broker import LeadingBroker, plain
from ..own_broker import OwnBroker
from .large_requests import Names, plain_request

APIS = [api for api in served_apis(logging.getLogger("oncelog.test")) if api.key > 1]
NAMES = Names(["t"], [b"t".ljust(16)])
AWAITS_MAX = 40
ANSWERED_WITHIN_S = 20


class Thrown(Exception):
    """An unexpected exception, thrown by the tests."""


class Interrupted:
    """A coroutine that gets an exception in its await with the number `at`."""

    def __init__(self, work: Awaitable[Any], at: int, error: BaseException) -> None:
        self._work, self._at, self._error = work, at, error
        self.was_thrown = False

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        number, error = 0, None
        while True:
            try:
                waited_for = steps.throw(error) if error is not None else next(steps)
            except StopIteration as end:
                return end.value
            number, error = number + 1, None
            if number == self._at:
                self.was_thrown, error = True, self._error
                if asyncio.isfuture(waited_for):
                    waited_for._asyncio_future_blocking = False
                continue
            yield waited_for


@asynccontextmanager
async def own_broker(root: Path) -> AsyncIterator[OwnBroker]:
    broker = OwnBroker(root)
    await broker.start()
    try:
        await broker.create("t", 1)
        await until(lambda: broker.serves("t", 1))
        yield broker
    finally:
        await broker.stop()


async def outcome_of(
    dispatcher: Dispatcher, context: RequestContext, api: Api, body: bytes
) -> PendingAnswer | str:
    """Return the pending answer to a request, or the reason if its connection is closed."""
    frame = memoryview(encode_request_header(api.key, api.max_version, 1, "test") + body)
    try:
        answer = dispatcher.dispatch(context, api, frame)
    except CloseConnection as reason:
        return str(reason)
    if not isinstance(answer, PendingAnswer):
        known = PendingAnswer()
        known.complete(answer)
        return known
    await until(lambda: answer.is_done, ANSWERED_WITHIN_S)
    return answer


@pytest.mark.parametrize("is_large", [False, True], ids=["short", "large"])
@pytest.mark.parametrize("error", [Thrown, asyncio.CancelledError])
async def test_request_that_raises_at_any_await_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], is_large: bool
) -> None:
    """A large request is decoded in slices. If that fails, its connection is closed."""
    run, interrupted = Dispatcher._run, list[Interrupted]()
    at = 0

    def interrupting(self: Dispatcher, *arguments: Any) -> PendingAnswer:
        interrupted.append(Interrupted(arguments[-1], at, error()))
        return run(self, *arguments[:-1], _awaiting(interrupted[-1]))  # type: ignore[call-arg]

    monkeypatch.setattr(Dispatcher, "_run", interrupting)
    if is_large:
        monkeypatch.setattr(dispatch, "BODY_AT_ONCE_BYTES_MAX", 0)
    thrown: dict[str, int] = {}
    async with own_broker(tmp_path) as broker:
        dispatcher = broker.server.dispatcher
        for api in APIS:
            name, body = API_NAMES[api.key], plain_request(api.key, api.max_version, NAMES)
            for at in range(1, AWAITS_MAX):
                interrupted.clear()
                context = RequestContext(broker.services, at, "127.0.0.1", table=dispatcher.table)
                answer = await outcome_of(dispatcher, context, api, body)
                is_closed = isinstance(answer, str) or answer.close_reason is not None
                assert isinstance(answer, str) or is_closed or answer.buffers, f"{name}, await {at}"
                assert is_large or not is_closed or not interrupted, f"{name}, await {at}"
                if not (interrupted and interrupted[0].was_thrown):
                    break
                thrown[name] = at
    assert len(thrown) >= (len(APIS) - 7 if is_large else 8), thrown


async def _awaiting(work: Interrupted) -> Any:
    return await work


class CallsThatRaise:
    """A tracer that raises in call number `at` of functions in handlers, codecs and partitions."""

    PLACES = ("/node/handlers/", "/wire/messages/", "/node/partitions/")
    OUTSIDE = ("replica_manager.py",)  # this file calls the others

    def __init__(self) -> None:
        self.at = self.count = 0

    def _trace(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        is_traced = event == "call" and any(place in file for place in self.PLACES)
        if is_traced and "/tests/" not in file and not file.endswith(self.OUTSIDE):
            self.count += 1
            if self.count == self.at:
                sys.settrace(None)
                raise Thrown(frame.f_code.co_qualname)

    @contextmanager
    def raising(self, at: int) -> Generator[None]:
        self.at, self.count = at, 0
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(None)

    @property
    def has_raised(self) -> bool:
        return self.count >= self.at


def waiting_produce(broker: LeadingBroker) -> bytes:
    topics = [ProduceTopic("t", None, [ProducePartition(0, plain())])]
    return b"".join(produce.encode_request(ProduceRequest(None, -1, 60_000, topics), 9))


def waiting_fetch(broker: LeadingBroker) -> bytes:
    topics = [FetchTopic("t", None, [FetchPartition(0, broker.log().log_end_offset, 1 << 20)])]
    return b"".join(fetch.encode_request(FetchRequest(60_000, 1, topics, isolation_level=1), 11))


@pytest.mark.parametrize(
    ("key", "version", "make"), [(0, 9, waiting_produce), (1, 11, waiting_fetch)]
)
async def test_request_that_raises_in_any_later_call_is_answered(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    key: int,
    version: int,
    make: Callable[[LeadingBroker], bytes],
) -> None:
    answering, calls = ReplicaManager._answer, CallsThatRaise()
    at = 1  # the call that continues the request

    def raising(self: ReplicaManager, operation: DelayedProduce | DelayedFetch) -> None:
        with calls.raising(at):
            answering(self, operation)

    monkeypatch.setattr(ReplicaManager, "_answer", raising)
    broker = LeadingBroker(tmp_path, replicas=(1, 2))
    while calls.has_raised:
        at += 1
        request = encode_request_header(key, version, at, "test") + make(broker)
        frame = memoryview(bytearray(request))
        answer = broker.dispatcher.dispatch(broker.connect(), broker.dispatcher.find(frame), frame)
        assert isinstance(answer, PendingAnswer) and not answer.is_done
        if key == FETCH:
            await broker.put(plain(), acks=1).errors()
        broker.replicate()
        assert answer.is_done and answer.buffers and not answer.close_reason, f"call {at}"
    assert at > 2


async def test_queued_produce_that_raises_is_answered_and_later_produces_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, errors = queue.check_in_slices, [Thrown("in the queue")]

    async def checking(*arguments: Any) -> None:
        if errors:
            raise errors.pop()
        await check(*arguments)

    monkeypatch.setattr(queue, "check_in_slices", checking)
    broker = LeadingBroker(tmp_path, log_config={"is_compacted": True})
    records = [Record(n, 1_700_000_000_000, b"k", b"v") for n in range(AT_ONCE_ITEMS_MAX + 1)]
    connection = broker.connect()
    first, second = (
        broker.put(bytearray(encode_batch(records)), connection=connection) for _ in range(2)
    )
    assert await first.errors() == {0: ErrorCode.UNKNOWN_SERVER_ERROR}
    assert await second.errors() == {0: ErrorCode.NONE}
    assert broker.log().log_end_offset == len(records)
