"""The queue of one API's large requests, a few of which are handled at a time.

A request of 400 kB can have 100,000 entries, and takes 30 to 150 times its size once it is decoded
and answered. The memory budget counts only received bytes of connected clients. A client that sends
such requests and disconnects, repeatedly, would fill the memory. So large requests are handled in
the order of their arrival, a few at a time or a single larger one. A request is dropped if its
client disconnects before its turn.

Each API has its own queue, so that requests which wait for the controller do not delay offset
commits. If the handler of a request waits long, for example without a controller, the request steps
aside and lets the next requests begin, as long as memory allows.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, Protocol

IN_WORK_BYTES_MAX = 512 * 1024  # the limit of received bytes of the requests being handled
ASIDE_BYTES_MAX = 1024 * 1024  # the limit of received bytes of the requests that have stepped aside
ASIDE_AFTER_S = 2.0


class RequestConnection(Protocol):
    """The fields of `dispatch.RequestContext` that show that the client has disconnected."""

    is_closed: bool
    on_close: list


class Nobody:
    """A connection that never closes, for an answer that many clients share."""

    def __init__(self) -> None:
        self.is_closed = False
        self.on_close: list[Any] = []


class ClientGone(Exception):
    """The error of a client that has disconnected before the turn of its request."""


class Place:
    """The place in the queue of a request that is being handled."""

    def __init__(self, line: "LargeRequests", size_bytes: int) -> None:
        self._line, self.size_bytes, self.is_aside = line, size_bytes, False

    async def decided(self, decision: Awaitable[Any]) -> Any:
        """Await `decision`, the coroutine of the request's handler, and return its result.

        After ASIDE_AFTER_S the request steps aside, so that the next ones begin.
        """
        deciding = asyncio.ensure_future(decision)
        try:
            await asyncio.wait((deciding,), timeout=ASIDE_AFTER_S)
            if not deciding.done():
                self._line.step_aside(self)
            return await deciding
        finally:
            deciding.cancel()
            del deciding  # its exception refers to this frame


class LargeRequests:
    """The queue of one API's large requests."""

    def __init__(self, in_work_bytes_max: int = IN_WORK_BYTES_MAX) -> None:
        self.in_work_bytes = self.aside_bytes = 0
        self._in_work_bytes_max = in_work_bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[bool]]] = deque()

    @asynccontextmanager
    async def turn(self, client: RequestConnection, size_bytes: int) -> AsyncIterator[Place]:
        """Wait until a large request may be handled, and hold its place while it is handled.

        Raises ClientGone if the client disconnects during the wait.
        """
        if client.is_closed:
            raise ClientGone
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        self._let_in()
        place = Place(self, size_bytes)
        try:
            if not turn.done():
                await self._wait(client, turn)
            yield place
        finally:  # a request may be cancelled just when its turn begins
            if place.is_aside:
                self.aside_bytes -= size_bytes
            elif turn.done() and not turn.cancelled() and turn.result():
                self.in_work_bytes -= size_bytes
                self._let_in()

    def step_aside(self, place: Place) -> None:
        """Free the place of a request whose handler takes long, so that the next requests begin.

        The place is kept if the requests that have stepped aside would exceed ASIDE_BYTES_MAX.
        """
        if self.aside_bytes + place.size_bytes <= ASIDE_BYTES_MAX:
            place.is_aside = True
            self.aside_bytes += place.size_bytes
            self.in_work_bytes -= place.size_bytes
            self._let_in()

    @staticmethod
    async def _wait(client: RequestConnection, turn: "asyncio.Future[bool]") -> None:
        def gone() -> None:
            if not turn.done():
                # An exception would refer to frames that refer to the future.
                turn.set_result(False)

        client.on_close.append(gone)
        try:
            if not await turn:
                raise ClientGone
        finally:
            if not client.is_closed:
                client.on_close.remove(gone)

    def _let_in(self) -> None:
        while self._waiting:
            size_bytes, turn = self._waiting[0]
            if not turn.done():
                after = self.in_work_bytes + size_bytes
                if self.in_work_bytes and after > self._in_work_bytes_max:
                    return
                self.in_work_bytes = after
                turn.set_result(True)
            self._waiting.popleft()
