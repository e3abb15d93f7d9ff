"""Snapshots of a process's groups, one at a time.

Rolling the journal may ask all groups for one at once. Together they would take the disk from the
commits, and twice their memory.
"""

from collections import deque
from collections.abc import Callable

Job = Callable[[Callable[[], None]], None]


class SnapshotQueue:
    """Jobs get a callable by which they say that they have ended; they need not end in the call."""

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()
        self._is_busy = False

    def add(self, job: Job) -> None:
        """Begin the job when those before it have ended."""
        self._waiting.append(job)
        self._begin_next()

    def _begin_next(self) -> None:
        if self._waiting and not self._is_busy:
            self._is_busy = True
            self._waiting.popleft()(self._ended)

    def _ended(self) -> None:
        self._is_busy = False
        self._begin_next()
