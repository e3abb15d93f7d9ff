"""Test that large requests are handled a few at a time, and not if their client has closed."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from oncelog.node.handlers.fetch.record_deletion import DELETION_WAIT_MS_MAX
from oncelog.node.listener import large_requests
from oncelog.node.listener.dispatch import RequestContext
from oncelog.node.listener.large_requests import IN_WORK_BYTES_MAX, ClientGone, LargeRequests
from oncelog.wire.errors import RequestTimedOut
from oncelog.wire.messages import control

from ...awaiting import settle, turns_until, until
from ..fake_broker import Answer, FakeBroker, request

METADATA, CREATE_TOPICS = 3, 19


class Client:
    def __init__(self) -> None:
        self.is_closed = False
        self.on_close: list[Callable[[], None]] = []

    def close(self) -> None:
        self.is_closed = True
        for callback in list(self.on_close):
            callback()


class Asking:
    """A large request, which is handled until `may_end` is set."""

    def __init__(self, line: LargeRequests, size_bytes: int) -> None:
        self.client, self.began = Client(), False
        self.may_end = asyncio.Event()
        self.task = asyncio.ensure_future(self._ask(line, size_bytes))

    async def _ask(self, line: LargeRequests, size_bytes: int) -> None:
        async with line.turn(self.client, size_bytes):
            self.began = True
            await self.may_end.wait()

    async def end(self) -> None:
        self.may_end.set()
        await self.task
        await settle(3)


async def test_large_requests_run_a_few_at_a_time_in_order() -> None:
    line = LargeRequests(100)
    asked = [Asking(line, size) for size in (60, 40, 10, 500, 5)]
    await settle()
    assert [each.began for each in asked] == [True, True, False, False, False]
    await asked[1].end()
    assert [each.began for each in asked] == [True, True, True, False, False]
    await asked[0].end()
    assert not asked[3].began
    await asked[2].end()
    assert [each.began for each in asked[3:]] == [True, False]
    await asked[3].end()
    assert asked[4].began
    await asked[4].end()
    assert not line.in_work_bytes


async def test_large_request_of_a_closed_client_is_not_handled() -> None:
    line = LargeRequests(100)
    first, gone, last = (Asking(line, 100) for _ in range(3))
    await settle()
    gone.client.close()
    with pytest.raises(ClientGone):
        await gone.task
    first.client.close()  # the first request has begun, and continues
    await first.end()
    assert last.began
    assert not last.client.on_close
    await last.end()
    late = Asking(line, 1)
    late.client.close()
    with pytest.raises(ClientGone):
        await late.task
    assert not line.in_work_bytes


async def test_large_request_that_fails_frees_its_place() -> None:
    line = LargeRequests(100)
    with pytest.raises(ZeroDivisionError):
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(line.turn(Client(), 100))
            raise ZeroDivisionError
    cancelled, waiting = Asking(line, 100), Asking(line, 100)
    await settle()
    cancelled.task.cancel()
    await settle()
    assert waiting.began
    await waiting.end()


async def test_large_request_cancelled_at_its_turn_frees_its_place() -> None:
    """The client closes in the same turn of the loop in which the previous request ends."""
    line = LargeRequests(100)
    async with AsyncExitStack() as first:
        await first.enter_async_context(line.turn(Client(), 100))
        cancelled, last = Asking(line, 100), Asking(line, 100)
        await settle()
    cancelled.task.cancel()
    await settle()
    assert not cancelled.began
    assert last.began
    await last.end()
    assert not line.in_work_bytes


async def test_large_request_waiting_for_the_controller_frees_its_place() -> None:
    """A request with a long timeout may wait for a controller, and would delay all others."""
    line = LargeRequests(100)
    decisions: list[asyncio.Future[str]] = []

    async def ask(size_bytes: int) -> str:
        async with line.turn(Client(), size_bytes) as place:
            decisions.append(asyncio.get_running_loop().create_future())
            return await place.decided(decisions[-1])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(large_requests, "ASIDE_AFTER_S", 0.01)
        patched.setattr(large_requests, "ASIDE_BYTES_MAX", 250)
        asked = [asyncio.ensure_future(ask(100)) for _ in range(4)]
        await until(lambda: len(decisions) >= 3)
        await asyncio.sleep(0.05)
        assert len(decisions) == 3, "a third one aside would exceed ASIDE_BYTES_MAX"
        assert (line.in_work_bytes, line.aside_bytes) == (100, 200)
        decisions[1].set_result("second")
        assert await asked[1] == "second"
        assert (line.in_work_bytes, line.aside_bytes) == (100, 100)
        decisions[2].set_result("third")
        assert await asked[2] == "third"
        await settle()
        assert len(decisions) == 4
        asked[3].cancel()
        await settle()
        assert decisions[3].cancelled()
        decisions[0].set_exception(RequestTimedOut())
        with pytest.raises(RequestTimedOut):
            await asked[0]
    assert (line.in_work_bytes, line.aside_bytes) == (0, 0)


@pytest.mark.parametrize("end", ["gone", "refused"])
async def test_large_request_that_ends_without_an_answer_leaves_no_reference_cycle(
    end: str,
) -> None:
    """Brokers run no full collection, so a cycle would leak the memory of the request."""

    class Body(list[int]):
        pass

    line = LargeRequests(100)
    first, client = Asking(line, 100), Client()
    is_over = asyncio.Event()

    async def decision() -> None:
        await is_over.wait()
        raise RequestTimedOut

    async def ask(body: Body) -> None:
        try:
            async with line.turn(client, len(body)) as place:
                await place.decided(decision())
        except (ClientGone, RequestTimedOut):
            return

    gc.collect()
    gc.disable()
    try:
        body = Body([0] * 50)
        held = weakref.ref(body)
        task = asyncio.ensure_future(ask(body))
        del body
        await settle()
        if end == "gone":
            client.close()
        else:
            await first.end()
            is_over.set()
        await task
        del task
        await settle(3)
        assert held() is None
    finally:
        gc.enable()
    await first.end()


async def test_large_requests_without_a_controller_do_not_delay_other_answers() -> None:
    broker = FakeBroker(1)

    async def submit(command: Any, *, timeout_ms: int) -> Any:
        await asyncio.sleep(timeout_ms / 1000)
        raise RequestTimedOut("the cluster has no controller")

    broker.services.controller.submit = submit  # type: ignore[method-assign]

    def ask(timeout_ms: int) -> Answer:
        topics = [{"name": f"{n:09}", "num_partitions": 1, "replication_factor": 1,
                   "assignments": [], "configs": []} for n in range(20_000)]  # fmt: skip
        values = {"topics": topics, "timeout": timeout_ms, "validate_only": False}
        return broker.request(CREATE_TOPICS, 5, values)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(large_requests, "ASIDE_AFTER_S", 0.05)
        patient, hasty = ask(600_000), ask(100)
        await until(lambda: hasty.is_there)
    assert not patient.is_there


async def test_large_requests_of_clients_that_close_leave_little_work() -> None:
    """In an earlier version all entries of each dropped request were handled."""
    broker = FakeBroker(1)
    topics = [{"name": f"{n:09}"} for n in range(20_000)]
    values = {"topics": topics, "allow_auto_topic_creation": False}
    body = control.encode_request(METADATA, 5, values)
    answers = []
    for _ in range(20):
        context = RequestContext(broker.services, 1, "127.0.0.1")
        answer = request(broker.dispatcher, context, METADATA, 5, body)
        answers.append(answer)
        await settle(2)
        context.is_closed = True
        for callback in list(context.on_close):
            callback()
        answer.abandon()
    await settle(5)
    assert len(broker.dispatcher._tasks) <= IN_WORK_BYTES_MAX // len(body)
    await turns_until(lambda: not broker.dispatcher._tasks, timeout_s=30)
    reasons = [answer.outcome.close_reason for answer in answers]
    assert reasons.count("its client is gone") >= 20 - IN_WORK_BYTES_MAX // len(body)


def test_wait_of_a_record_deletion_is_shorter_than_the_largest_timeout() -> None:
    assert DELETION_WAIT_MS_MAX < 2**31 - 1
