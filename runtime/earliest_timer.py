"""One timer for many deadlines; it fires at the earliest of them."""

import asyncio
from collections.abc import Callable
from math import inf


class EarliestTimer:
    """Calls `due` at the earliest time it was set to; `due` sets the timer for the next deadline.

    now_ms: the clock of these times.
    """

    def __init__(self, now_ms: Callable[[], int], due: Callable[[], None]) -> None:
        self._now_ms = now_ms
        self._due = due
        self._timer: asyncio.TimerHandle | None = None
        self.at_ms: float = inf  # when it fires

    def set(self, at_ms: int) -> None:
        """Fire at this time at the latest."""
        if self.at_ms <= at_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.at_ms = at_ms
        delay_ms = max(0, at_ms - self._now_ms())
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._go_off)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _go_off(self) -> None:
        self._timer, self.at_ms = None, inf
        self._due()
