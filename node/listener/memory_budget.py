"""How many bytes of requests and unsent answers all connections together may hold.

Above the limit, a connection that holds more than its small allowance is not read any further
until others have let go. If nobody can let go, because everything held is incomplete requests,
one connection at a time, the one that waited longest, may finish its request: so the bytes held
stay below limit + connections * allowance + one request, and there is no deadlock.
"""

from typing import Protocol

ALLOWANCE_BYTES = 128 * 1024


class Holder(Protocol):
    """A connection, as the budget sees it."""

    @property
    def can_finish(self) -> bool:
        """Return whether it has a part of a request, and only lacks leave to read the rest."""
        ...

    def budget_allows(self) -> None:
        """Read on; if it is still too much, you will be asked to wait again."""
        ...


class MemoryBudget:
    """Counts bytes, and keeps the queue of those that wait for some."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._waiting: dict[Holder, None] = {}
        self._passing: Holder | None = None

    @property
    def waiting_count(self) -> int:
        """How many connections are not read at the moment."""
        return len(self._waiting)

    @property
    def share_bytes(self) -> int:
        """How large an answer may be: half of what is left, so that something is left for others.

        An answer counts from when its client does not take it at once (`Connection.pause_writing`),
        which is known before anything else is read. The first batch is read whatever its size.
        """
        return max(0, self.limit_bytes - self.held_bytes) // 2

    @property
    def is_short(self) -> bool:
        """Return whether those who do not take their answers must make room."""
        return self.held_bytes > self.limit_bytes * 3 // 4

    def hold(self, count: int) -> None:
        """So many more bytes are held."""
        self.held_bytes += count

    def release(self, count: int) -> None:
        """So many bytes are free again; wakes those that wait when there is room."""
        self.held_bytes -= count
        if self._waiting and self.held_bytes <= self.limit_bytes:
            waiting, self._waiting = self._waiting, {}
            for holder in waiting:
                holder.budget_allows()

    def must_wait(self, holder: Holder, held_bytes: int) -> bool:
        """Return whether this connection, which holds so many bytes, must stop reading for now."""
        if self.held_bytes <= self.limit_bytes or held_bytes <= ALLOWANCE_BYTES:
            return False
        if holder is self._passing:
            return False
        self._waiting[holder] = None
        return True

    def is_passing(self, holder: Holder) -> bool:
        """Return whether this one may finish its request though there is no room."""
        return holder is self._passing

    def finished_request(self, holder: Holder) -> None:
        """The connection received a request completely, or is gone."""
        if holder is self._passing:
            self._passing = None

    def remove(self, holder: Holder) -> None:
        self._waiting.pop(holder, None)
        self.finished_request(holder)

    def let_one_pass(self) -> None:
        """Called now and then: let the first in the queue that can finish its request do so.

        One that has no part of a request, because it waits for an answer or for its client, would
        keep the leave for ever, and all others out.
        """
        if self._passing is not None and not self._passing.can_finish:
            self._passing = None
        if self._passing is None:
            holder = next((each for each in self._waiting if each.can_finish), None)
            if holder is not None:
                del self._waiting[holder]
                self._passing = holder
                holder.budget_allows()
