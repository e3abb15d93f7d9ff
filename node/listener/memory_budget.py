"""The memory budget of all connections, for requests and unsent answers.

Above the limit, a connection that holds more than its small allowance is not read any further
until others release memory. If none can, because all held bytes are incomplete requests, one
connection at a time, the one that waited longest, may finish its request. So the held bytes stay
below limit + connections * allowance + one request, and there is no deadlock.
"""

from typing import Protocol

ALLOWANCE_BYTES = 128 * 1024


class Holder(Protocol):
    """A connection, as the budget sees it."""

    @property
    def can_finish(self) -> bool:
        """Return whether it has a part of a request, and may only not read the rest."""
        ...

    def budget_allows(self) -> None:
        """Resume reading; the connection may have to wait again."""
        ...


class MemoryBudget:
    """The count of held bytes, and the queue of connections that wait for room."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._waiting: dict[Holder, None] = {}
        self._passing: Holder | None = None

    @property
    def waiting_count(self) -> int:
        """The number of connections that wait for room."""
        return len(self._waiting)

    @property
    def share_bytes(self) -> int:
        """The largest answer at this moment: half of the free bytes.

        An answer counts from the moment when its client does not take it (`pause_writing` of
        `Connection`), which comes before any other read. The first batch is read whatever its size.
        """
        return max(0, self.limit_bytes - self.held_bytes) // 2

    @property
    def is_short(self) -> bool:
        """Return whether clients that do not take their answers must be disconnected."""
        return self.held_bytes > self.limit_bytes * 3 // 4

    def hold(self, count: int) -> None:
        """Add held bytes."""
        self.held_bytes += count

    def release(self, count: int) -> None:
        """Subtract held bytes; wake the waiting connections when there is room."""
        self.held_bytes -= count
        if self._waiting and self.held_bytes <= self.limit_bytes:
            waiting, self._waiting = self._waiting, {}
            for holder in waiting:
                holder.budget_allows()

    def must_wait(self, holder: Holder, held_bytes: int) -> bool:
        """Return whether a connection that holds so many bytes must stop reading for now."""
        if self.held_bytes <= self.limit_bytes or held_bytes <= ALLOWANCE_BYTES:
            return False
        if holder is self._passing:
            return False
        self._waiting[holder] = None
        return True

    def is_passing(self, holder: Holder) -> bool:
        """Return whether this connection may finish its request though there is no room."""
        return holder is self._passing

    def finished_request(self, holder: Holder) -> None:
        """Note that a connection has received its request completely, or is gone."""
        if holder is self._passing:
            self._passing = None

    def remove(self, holder: Holder) -> None:
        self._waiting.pop(holder, None)
        self.finished_request(holder)

    def let_one_pass(self) -> None:
        """Let the first connection of the queue that can finish its request do so.

        Call it periodically. A connection without a part of a request, because it waits for an
        answer or for its client, would keep all others out for ever.
        """
        if self._passing is not None and not self._passing.can_finish:
            self._passing = None
        if self._passing is None:
            holder = next((each for each in self._waiting if each.can_finish), None)
            if holder is not None:
                del self._waiting[holder]
                self._passing = holder
                holder.budget_allows()
