"""The queue of large answers, which are built a few at a time within the memory budget.

A request of a few bytes can have an answer of one megabyte, and building it takes ten megabytes.
The queues of large requests count received bytes, so they would let a hundred such requests run at
the same time. Here the number of entries is estimated before an answer is built. A small answer
does not wait. Large answers are built in the order of their requests, a few at a time. An answer
that exceeds the limit is built alone, so that it does not wait forever.

The estimated memory of the answers being built is charged to the memory budget, up to half of it,
so that fewer requests are read meanwhile. A complete answer is charged to its connection: unsent
bytes count there (`Connection.pause_writing`), and the connection is closed when memory is short.
So a slow reader never blocks this queue.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .large_requests import LargeRequests, RequestConnection
from .memory_budget import MemoryBudget

ENTRY_BYTES = 400  # the estimated memory of one entry while an answer is built
WAITS_BEYOND_BYTES = 300 * ENTRY_BYTES
# Answers above this estimate are refused, such as the configs of 40,000 topics.
REFUSED_BEYOND_BYTES = 512 * 1024 * 1024
IN_WORK_BYTES_MAX = 8 * 1024 * 1024


class LargeAnswers:
    """The queue of all large answers of one broker."""

    def __init__(self, in_work_bytes_max: int = IN_WORK_BYTES_MAX) -> None:
        self._line = LargeRequests(in_work_bytes_max)

    @property
    def in_work_bytes(self) -> int:
        """The estimated memory of the answers that are being built."""
        return self._line.in_work_bytes

    @asynccontextmanager
    async def turn(
        self, client: RequestConnection, budget: MemoryBudget, size_bytes: int
    ) -> AsyncIterator[None]:
        """Wait until a large answer may be built, and charge its memory while it is built.

        The charge is at most half of the budget. An answer of at most WAITS_BEYOND_BYTES does not
        wait, and is not charged. Raises ClientGone if the client disconnects during the wait.
        """
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
