"""The mute of a connection above its quota (KIP-219)."""

import asyncio
from collections.abc import Callable
from typing import Protocol


class MutedConnection(Protocol):
    """A connection that can be muted, so that it starts no request."""

    on_close: list[Callable[[], None]]
    is_muted: bool
    resume: Callable[[], None] | None


class Mute:
    """The mute of one connection. Of several throttle times, the one that ends last counts."""

    __slots__ = ("_connection", "_timer", "_until_s")

    def __init__(self, connection: MutedConnection) -> None:
        self._connection: MutedConnection | None = connection
        self._timer: asyncio.TimerHandle | None = None
        self._until_s = 0.0
        connection.on_close.append(self.close)

    def begin(self, throttle_ms: float) -> None:
        """Mute the connection for this time, or longer if a running mute ends later."""
        if self._connection is None:
            return
        loop = asyncio.get_running_loop()
        self._until_s = max(self._until_s, loop.time() + throttle_ms / 1000)
        self._connection.is_muted = True
        if self._timer is None:
            self._timer = loop.call_at(self._until_s, self._look)

    def close(self) -> None:
        """Cancel the timer, since the connection is closed."""
        self._connection = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        connection = self._connection
        if connection is None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._until_s:
            self._timer = loop.call_at(self._until_s, self._look)
            return
        connection.is_muted = False
        if connection.resume is not None:
            connection.resume()
