"""How much of large requests of one API is in work at a time.

A request of some 400 kB can have 100,000 entries, and is 30 to 150 times as large once it is
decoded and answered. The memory budget counts the bytes that came, and no longer those of a client
that has gone: whoever sends such requests and closes, again and again, would fill the memory. So
they have their turn in the order in which they came, a few at a time or one that is larger, and
one whose client has gone before its turn is dropped.

Each API has a line of its own: what waits for the controller keeps no offsets from being committed.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

IN_WORK_BYTES_MAX = 512 * 1024  # of requests as they came


class Client(Protocol):
    """Whoever asks: `dispatch.RequestContext`."""

    is_closed: bool
    on_close: list


class ClientGone(Exception):
    """Nobody waits for the answer."""


class LargeRequests:
    """The line of one API."""

    def __init__(self, in_work_bytes_max: int = IN_WORK_BYTES_MAX) -> None:
        self.in_work_bytes = 0
        self._in_work_bytes_max = in_work_bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def turn(self, client: Client, size_bytes: int) -> AsyncIterator[None]:
        """Wait for the turn of a request, and hold its place. Raises ClientGone."""
        if client.is_closed:
            raise ClientGone
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        self._let_in()
        try:
            if not turn.done():
                await self._wait(client, turn)
            yield
        finally:  # a cancelled request may have been given its turn without having heard of it
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.in_work_bytes -= size_bytes
                self._let_in()

    @staticmethod
    async def _wait(client: Client, turn: "asyncio.Future[None]") -> None:
        def gone() -> None:
            if not turn.done():
                turn.set_exception(ClientGone())

        client.on_close.append(gone)
        try:
            await turn
        finally:
            client.on_close.remove(gone)

    def _let_in(self) -> None:
        while self._waiting:
            size_bytes, turn = self._waiting[0]
            if not turn.done():
                after = self.in_work_bytes + size_bytes
                if self.in_work_bytes and after > self._in_work_bytes_max:
                    return
                self.in_work_bytes = after
                turn.set_result(None)
            self._waiting.popleft()
