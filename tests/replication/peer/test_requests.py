"""Test that a request ends once, by its reply, a broken connection or its deadline."""

import asyncio
import gc
import math
import warnings
from collections.abc import Sequence
from typing import Any

import pytest

from oncelog.replication.peer.handlers import (
    Answered,
    Buffer,
    PeerHandlers,
    PeerTimeout,
    PeerUnavailable,
)
from oncelog.replication.peer.requests import RequestsUnderWay

from ...awaiting import until

REPLY = (b"header", [])


class Loop(asyncio.SelectorEventLoop):
    """An event loop with a clock that the test advances."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for _ in range(3):  # timers, then the calls they postponed to the end of the turn
            self.call_soon(self.stop)
            self.run_forever()


@pytest.fixture
def loop():
    loop = Loop()
    yield loop
    loop.close()


def test_peer_request_is_completed_once_and_only_by_a_reply_on_its_connection(loop: Loop) -> None:
    requests, heard = RequestsUnderWay(loop, 7), []
    here, there = object(), object()
    number = requests.add(heard.append, here, 2, 100)
    assert number == 8
    assert not requests.replied(number, there, REPLY)
    assert requests.replied(number, here, REPLY)
    assert not requests.replied(number, here, REPLY)
    loop.advance(1)
    assert heard == [REPLY]
    assert len(requests) == 0


def test_peer_request_has_its_own_deadline(loop: Loop) -> None:
    requests, heard = RequestsUnderWay(loop, 0), []
    connection = object()
    for timeout_ms in (3000, 100, 200):
        requests.add(
            lambda error, t=timeout_ms: heard.append((t, error)), connection, 2, timeout_ms
        )
    loop.advance(0.05)
    assert heard == []
    loop.advance(0.06)
    assert [t for t, _ in heard] == [100]
    loop.advance(0.1)
    assert [t for t, _ in heard] == [100, 200]
    loop.advance(3)
    assert [t for t, _ in heard] == [100, 200, 3000]
    assert all(isinstance(error, PeerTimeout) for _, error in heard)
    assert "within 3000 ms" in str(heard[-1][1])


def test_peer_request_deadline_rounded_above_the_clock_is_still_due(loop: Loop) -> None:
    """A timer of uvloop may fire just before the deadline, and must not be set again endlessly."""
    requests, heard = RequestsUnderWay(loop, 0), []
    requests.add(heard.append, None, 2, 150)
    loop.advance(math.nextafter(0.15, 0))
    assert [type(error) for error in heard] == [PeerTimeout]


def test_peer_requests_on_a_broken_connection_fail(loop: Loop) -> None:
    requests, heard = RequestsUnderWay(loop, 0), []
    one, other = object(), object()
    requests.add(lambda error: heard.append(("one", error)), one, 2, 1000)
    requests.add(lambda error: heard.append(("other", error)), other, 3, 1000)
    requests.fail(PeerUnavailable("it broke"), one)
    assert heard == [], "the callback comes later in this turn, and may send a request"
    loop.advance(0.01)
    assert [who for who, _ in heard] == ["one"]
    requests.fail(PeerUnavailable("this broker is stopping"))
    loop.advance(0.01)
    assert [who for who, _ in heard] == ["one", "other"]
    assert len(requests) == 0


class SilentPeers(PeerHandlers):
    def ask(
        self,
        peer: int,
        kind: int,
        header: bytes,
        frames: Sequence[Buffer] = (),
        *,
        answered: Answered,
        **_: Any,
    ) -> None:
        asyncio.get_running_loop().call_soon(answered, PeerTimeout("no reply"))


def test_peer_request_that_fails_leaves_no_reference_cycle(loop: Loop) -> None:
    """Brokers collect only young objects, so a cycle with an older future would never be freed."""

    async def ask() -> None:
        with pytest.raises(PeerTimeout):
            await SilentPeers(1).request(2, 0, b"", timeout_ms=1)

    with warnings.catch_warnings(action="ignore"):  # left by other tests
        gc.collect()
    before = [one for one in gc.get_objects() if isinstance(one, PeerTimeout)]
    gc.disable()
    try:
        loop.run_until_complete(ask())
        after = [one for one in gc.get_objects() if isinstance(one, PeerTimeout)]
        assert len(after) == len(before)
    finally:
        gc.enable()


@pytest.mark.uvloop
async def test_peer_request_with_a_deadline_of_zero_ms_times_out() -> None:
    """A TimerHandle of uvloop has no `when` if its delay rounds to 0 ms."""
    requests, heard = RequestsUnderWay(asyncio.get_running_loop(), 0), []
    for timeout_ms in (0, 0, 1, 150, 0):
        requests.add(heard.append, None, 2, timeout_ms)
    await until(lambda: len(heard) == 5)
    assert all(isinstance(error, PeerTimeout) for error in heard)
    assert len(requests) == 0
