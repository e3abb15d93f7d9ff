"""One timer for many deadlines, which fires at the earliest of them."""

import asyncio
from collections.abc import Callable
from math import inf


class EarliestTimer:
    """A timer that calls `due` at the earliest of the times that were set.

    When it has fired, no time is set, so `due` must set the next one. now_ms: the clock of the
    times.
    """

    def __init__(self, now_ms: Callable[[], int], due: Callable[[], None]) -> None:
        self._now_ms = now_ms
        self._due = due
        self._timer: asyncio.TimerHandle | None = None
        self.at_ms: float = inf  # the time at which it fires

    def set(self, at_ms: int) -> None:
        """Make the timer fire at this time, unless an earlier time is set."""
        if self.at_ms <= at_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.at_ms = at_ms
        delay_ms = max(0, at_ms - self._now_ms())
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._go_off)

    def cancel(self) -> None:
        """Cancel the timer for good, at the end of its owner."""
        if self._timer is not None:
            self._timer.cancel()

    def _go_off(self) -> None:
        self._timer, self.at_ms = None, inf
        self._due()
