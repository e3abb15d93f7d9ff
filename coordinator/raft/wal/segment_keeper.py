"""Makes the journal's next segment ready in time, and deletes those that nobody needs.

Both are slow jobs of an executor, never two at once: were a preparation late, it would make a
deleted segment again, empty; and a gap among the segments would look like damage.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from .journal import Journal

RunBlocking = Callable[[Callable[[], Any], Callable[[Any], None]], None]  # a job, and then


class SegmentKeeper:
    """The segments of one journal."""

    def __init__(self, journal: Journal, run_blocking: RunBlocking, segments_max: int) -> None:
        self._journal = journal
        self._run_blocking = run_blocking
        self._segments_max = segments_max
        self._prepared = 0  # the newest segment that was asked for
        self._is_busy = False
        self._garbage: deque[tuple[int, list[int]]] = deque()  # (sequence, segments)

    def tend(self, release: Callable[[int], None]) -> None:
        """Call after each group commit. `release` asks a group to free the oldest segment."""
        journal = self._journal
        wanted = journal.needs_next_segment()
        if wanted is not None and wanted != self._prepared and not self._is_busy:
            self._prepared, self._is_busy = wanted, True
            self._run_blocking(lambda: journal.prepare(wanted), self._job_ended)
        if journal.segment_count > self._segments_max:
            for group_id in journal.pinned_by():
                release(group_id)
        if numbers := journal.deletable():
            self._garbage.append((journal.sequence, numbers))
        self._delete_garbage()

    def _job_ended(self, _: None) -> None:
        self._is_busy = False
        self._delete_garbage()

    def _delete_garbage(self) -> None:
        ready = self._garbage and self._garbage[0][0] <= self._journal.durable_sequence
        if ready and not self._is_busy:
            self._is_busy = True
            _, numbers = self._garbage.popleft()
            self._run_blocking(lambda: self._journal.delete(numbers), self._job_ended)
