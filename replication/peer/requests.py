"""The requests of one broker that wait for their replies.

Each request ends once, with its reply, with PeerUnavailable, or with PeerTimeout. PeerUnavailable
means that the connection broke or the peer could not serve the request. One timer serves all
deadlines, because almost every request is answered long before its own deadline. Correlation ids
start at a random number in each process, so a reply to a request of a former incarnation is
dropped.
"""

import asyncio
from math import inf
from typing import NamedTuple

from ...runtime.c_calls import new_tuple
from .handlers import Answered, Body, PeerError, PeerTimeout, PeerUnavailable

TIMER_RESOLUTION_S = 0.0005  # uvloop rounds to whole milliseconds


class _UnderWay(NamedTuple):
    """A waiting request, with its callback, its connection, and its deadline."""

    answered: Answered
    connection: object
    peer: int
    timeout_ms: int
    deadline: float


class RequestsUnderWay:
    """The requests of one event loop. `connection` is any object, compared by identity."""

    def __init__(self, loop: asyncio.AbstractEventLoop, first_correlation_id: int) -> None:
        self._loop = loop
        self._correlation_id = first_correlation_id
        self._under_way: dict[int, _UnderWay] = {}
        # uvloop returns a handle without a time if the delay rounds to 0 ms.
        self._timer: asyncio.Handle | None = None
        self._wakes_at = inf

    def __len__(self) -> int:
        return len(self._under_way)

    def add(self, answered: Answered, connection: object, peer: int, timeout_ms: int) -> int:
        """Register a request. Return its correlation id."""
        self._correlation_id = correlation_id = self._correlation_id + 1
        deadline = self._loop.time() + timeout_ms / 1000
        if deadline < self._wakes_at:
            self._wake_at(deadline)
        self._under_way[correlation_id] = new_tuple(
            _UnderWay, (answered, connection, peer, timeout_ms, deadline)
        )
        return correlation_id

    def replied(self, correlation_id: int, connection: object, outcome: Body | PeerError) -> bool:
        """Pass a reply, or the peer's failure, to its waiting request on this connection.

        Returns False if no such request waits.
        """
        waiting = self._under_way.get(correlation_id)
        if waiting is None or waiting.connection is not connection:
            return False
        del self._under_way[correlation_id]
        waiting.answered(outcome)
        return True

    def end(self, correlation_id: int, error: PeerError) -> None:
        """End a request with an error, in the next turn of the event loop.

        Its callback is not called now, since it may send another request.
        """
        waiting = self._under_way.pop(correlation_id)
        self._loop.call_soon(waiting.answered, error)

    def fail(self, error: PeerUnavailable, connection: object = None) -> None:
        """End the requests of one connection, or all if `connection` is None, with an error."""
        ended = [
            number
            for number, waiting in self._under_way.items()
            if connection is None or waiting.connection is connection
        ]
        for number in ended:
            self.end(number, error)

    def _wake_at(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = deadline
        self._timer = self._loop.call_at(deadline, self._deadlines)

    def _deadlines(self) -> None:
        self._timer, self._wakes_at = None, inf
        now = self._loop.time() + TIMER_RESOLUTION_S
        late = [number for number, waiting in self._under_way.items() if waiting.deadline <= now]
        for number in late:
            _, _, peer, timeout_ms, _ = self._under_way[number]
            self.end(number, PeerTimeout(f"broker {peer} did not answer within {timeout_ms} ms"))
        if self._under_way:
            self._wake_at(min(waiting.deadline for waiting in self._under_way.values()))
