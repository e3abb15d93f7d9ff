"""Large answers are made one after the other, and are charged to the memory budget before.

A question of some bytes can have an answer of a megabyte, and of ten while it is made. The lines
of large requests count what comes, so a hundred such questions would be in work at once. Here a
question says before its answer is made how many entries that will have, about. A small answer waits
for nothing; the others have their turn in the order in which they were asked for, a few at a time
or one that is larger than all of them may be, so that no answer waits for ever.

What is being made counts as held memory, so that requests are read with more care meanwhile; up to
half of the budget, so that they are read at all. Once an answer is made its connection has it: what
its client does not take is counted there (`Connection.pause_writing`), and ends that client when
memory is short. So a slow reader never holds a place in this line.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .large_requests import LargeRequests, RequestConnection
from .memory_budget import MemoryBudget

ENTRY_BYTES = 400  # what one entry of an answer takes while it is made, about
WAITS_BEYOND_BYTES = 300 * ENTRY_BYTES
REFUSED_BEYOND_BYTES = 512 * 1024 * 1024  # by that estimate: the configs of 40,000 topics
IN_WORK_BYTES_MAX = 8 * 1024 * 1024


class LargeAnswers:
    """The line of all answers of one broker."""

    def __init__(self, in_work_bytes_max: int = IN_WORK_BYTES_MAX) -> None:
        self._line = LargeRequests(in_work_bytes_max)

    @property
    def in_work_bytes(self) -> int:
        """How much the answers that are being made take, about."""
        return self._line.in_work_bytes

    @asynccontextmanager
    async def turn(
        self, client: RequestConnection, budget: MemoryBudget, size_bytes: int
    ) -> AsyncIterator[None]:
        """Wait for the turn of an answer, and hold its memory. Raises ClientGone."""
        if size_bytes <= WAITS_BEYOND_BYTES:
            yield
            return
        async with self._line.turn(client, size_bytes):
            held_bytes = min(size_bytes, budget.limit_bytes // 2)
            budget.hold(held_bytes)
            try:
                yield
            finally:
                budget.release(held_bytes)
