"""One timer for many deadlines: it goes off at the earliest of them."""

import asyncio
from collections.abc import Callable


class EarliestTimer:
    """Calls `due` at the earliest time it was set to; `due` sets it to what comes next.

    now_ms: the clock of these times.
    """

    def __init__(self, now_ms: Callable[[], int], due: Callable[[], None]) -> None:
        self._now_ms = now_ms
        self._due = due
        self._timer: asyncio.TimerHandle | None = None
        self._at_ms = 0

    def set(self, at_ms: int) -> None:
        """Go off at this time at the latest."""
        if self._timer is not None:
            if self._at_ms <= at_ms:
                return
            self._timer.cancel()
        self._at_ms = at_ms
        delay_ms = max(0, at_ms - self._now_ms())
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._go_off)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _go_off(self) -> None:
        self._timer = None
        self._due()
