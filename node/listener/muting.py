"""The pause of a connection whose client has used up its quota (KIP-219)."""

import asyncio

from .request_context import RequestContext


class Mute:
    """Lets a connection start no request for a while; of two pauses the longer one counts."""

    __slots__ = ("_context", "_timer", "_until_s")

    def __init__(self, context: RequestContext) -> None:
        self._context: RequestContext | None = context
        self._timer: asyncio.TimerHandle | None = None
        self._until_s = 0.0
        context.on_close.append(self.close)

    def begin(self, throttle_ms: float) -> None:
        """Pause for so long from now on, or for as long as the pause that is under way."""
        if self._context is None:
            return
        loop = asyncio.get_running_loop()
        self._until_s = max(self._until_s, loop.time() + throttle_ms / 1000)
        self._context.is_muted = True
        if self._timer is None:
            self._timer = loop.call_at(self._until_s, self._look)

    def close(self) -> None:
        """The connection is gone: keep nothing of it."""
        self._context = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        context = self._context
        if context is None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._until_s:
            self._timer = loop.call_at(self._until_s, self._look)
            return
        context.is_muted = False
        if context.resume is not None:
            context.resume()
