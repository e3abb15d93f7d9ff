"""The queue of outcomes to submitters, and the queue of snapshots.

Outcomes are reported after the turn of the engine, in order, in portions. When a node loses its
leaderships, thousands of requests get an unknown outcome, and each submitter continues in the next
iteration of the event loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable

Job = Callable[[Callable[[], None]], None]


class SnapshotQueue:
    """The snapshots of all groups of a process, written one at a time.

    A new journal segment may require a snapshot of every group. If all snapshots were written
    together, they would delay commits on the disk and take twice their memory. A job gets a
    function, and calls it when the snapshot is written.
    """

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()
        self._is_busy = False

    def add(self, job: Job) -> None:
        """Begin the job when all jobs before it have ended."""
        self._waiting.append(job)
        self._begin_next()

    def _begin_next(self) -> None:
        if self._waiting and not self._is_busy:
            self._is_busy = True
            self._waiting.popleft()(self._ended)

    def _ended(self) -> None:
        self._is_busy = False
        self._begin_next()


OUTCOMES_AT_ONCE = 100  # about 3 ms, and as much for the submitters


class OutcomeQueue:
    """The calls by which one engine reports outcomes of commands."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], None]] = deque()
        self._is_due = False  # a later turn of the loop continues

    def add(self, call: Callable[[], None]) -> None:
        """Add a call that reports an outcome. It is made after the engine's turn."""
        self._calls.append(call)

    def report(self) -> None:
        """Make a limited number of the calls now. Later iterations of the loop make the rest."""
        if not self._is_due:
            self._report()

    def report_all(self) -> None:
        """Make all calls now, because the event loop may end."""
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
