"""Turns for large answers: a few are built at a time, and are charged to the memory budget.

A request of some bytes can have an answer of a megabyte, which takes ten while it is built. The
queues of large requests count received bytes, so they would let a hundred such requests run at
once. Here the number of entries of an answer is estimated before it is built. A small answer does
not wait. Large ones have their turn in the order of their requests, a few at a time, or a single
one that exceeds the bound, so that no answer waits for ever.

The answers being built count as held memory, so that fewer requests are read meanwhile; up to half
of the budget, so that some are still read. A complete answer belongs to its connection: bytes that
the client does not take count there (`Connection.pause_writing`), and the connection is closed when
memory is short. So a slow reader never holds a place in this queue.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .large_requests import LargeRequests, RequestConnection
from .memory_budget import MemoryBudget

ENTRY_BYTES = 400  # the memory of one entry of an answer while it is built, about
WAITS_BEYOND_BYTES = 300 * ENTRY_BYTES
REFUSED_BEYOND_BYTES = 512 * 1024 * 1024  # by that estimate: the configs of 40,000 topics
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
        """Wait for the turn of an answer, and hold its memory; raise ClientGone."""
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
