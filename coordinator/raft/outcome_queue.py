"""Outcomes on their way to submitters: after the turn of the engine, in order, some at a time.

A node that leads no more has an unknown outcome for each of thousands of requests, and each that
hears of its outcome goes on in the next turn of the loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable

OUTCOMES_AT_ONCE = 100  # some 3 ms, and as much for those who waited


class OutcomeQueue:
    """The outcomes of one engine."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], None]] = deque()
        self._is_due = False  # the next ones, in a turn of the loop that is to come

    def add(self, call: Callable[[], None]) -> None:
        """Call it with the next report, when no group is in the middle of anything."""
        self._calls.append(call)

    def report(self) -> None:
        """Report as many as there is time for in this turn of the loop, the others soon."""
        if not self._is_due:
            self._report()

    def report_all(self) -> None:
        """Leave nobody waiting: the loop may end."""
        while self._calls:
            self._calls.popleft()()

    def _report(self) -> None:
        self._is_due = False
        for _ in range(min(len(self._calls), OUTCOMES_AT_ONCE)):
            if self._calls:  # a call may have stopped the engine
                self._calls.popleft()()
        if self._calls:
            self._is_due = True
            self._loop.call_soon(self._report)
