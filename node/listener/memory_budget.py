"""The memory budget of all connections, for requests and unsent answers.

Above the limit, a connection that holds more than a small allowance is not read until other
connections release memory, and one read fills at most the allowance. If all held bytes belong to
incomplete requests, no connection can release memory. A few clients may also hold the memory by
requests that wait for long. So the connection that waited longest may finish its request, one
connection at a time. The next one follows once that request is answered, or a second later. Above
twice the limit, a request that is not answered within a second or two loses its connection. The
held bytes stay below twice the limit + connections * 2 * allowance + one request, and there is no
deadlock.
"""

from typing import Protocol

ALLOWANCE_BYTES = 128 * 1024


class Holder(Protocol):
    """The part of a connection that `MemoryBudget` uses."""

    @property
    def can_finish(self) -> bool:
        """Return whether only the memory budget keeps the rest of a request from being read."""
        ...

    def budget_allows(self) -> None:
        """Resume reading. The connection may have to wait again later."""
        ...

    def close(self, reason: str) -> None: ...
    def abort(self) -> None: ...


class MemoryBudget:
    """The count of held bytes, and the queue of connections that wait for memory."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._waiting: dict[Holder, None] = {}
        self._passing: Holder | None = None
        self._passed: Holder | None = None  # the last connection to pass, until it is answered
        self._was_passed: Holder | None = None  # this connection at the last call of `check`

    @property
    def waiting_count(self) -> int:
        """The number of connections that wait for memory."""
        return len(self._waiting)

    @property
    def share_bytes(self) -> int:
        """The current size limit of one answer, which is half of the free bytes.

        An answer is held as soon as its client does not read it (`Connection.pause_writing`). That
        is known before another fetch is read, so each answer is limited by the bytes that are free
        by then. The first batch of a fetch is returned even if it exceeds the limit.
        """
        return max(0, self.limit_bytes - self.held_bytes) // 2

    @property
    def is_short(self) -> bool:
        """Return whether clients that do not read their answers must be disconnected."""
        return self.held_bytes > self.limit_bytes * 3 // 4

    def hold(self, count: int) -> None:
        """Add bytes to the held bytes."""
        self.held_bytes += count

    def release(self, count: int, holder: Holder | None = None) -> None:
        """Subtract held bytes, and wake the waiting connections when the limit allows.

        holder: the connection, after an answer.
        """
        self.held_bytes -= count
        if self._waiting and self.held_bytes <= self.limit_bytes:
            waiting, self._waiting = self._waiting, {}
            for each in waiting:
                each.budget_allows()
        if holder is not None and holder is self._passed:
            self._passed = None
            self.pass_next()

    def must_wait(self, holder: Holder, held_bytes: int) -> bool:
        """Return whether a connection that holds this number of bytes must stop reading for now.

        A connection that waits calls this method again after its answers.
        """
        is_small = self.held_bytes <= self.limit_bytes or held_bytes <= ALLOWANCE_BYTES
        if is_small or holder is self._passing:
            self._waiting.pop(holder, None)
            return False
        self._waiting[holder] = None
        return True

    def room(self, holder: Holder, buffer: memoryview) -> memoryview:
        """Return the part of a buffer that one read may fill above the limit."""
        return buffer if holder is self._passing else buffer[:ALLOWANCE_BYTES]

    def is_passing(self, holder: Holder) -> bool:
        """Return whether this connection may finish its request although the limit is exceeded."""
        return holder is self._passing

    def finished_request(self, holder: Holder) -> None:
        """Note that a connection has received its request completely."""
        if holder is self._passing:
            self._passing, self._passed = None, holder

    def remove(self, holder: Holder) -> None:
        """Forget a connection that receives no more. Its bytes are released later."""
        self._waiting.pop(holder, None)
        self.finished_request(holder)
        if holder is self._passed:
            self._passed = None
            self.pass_next()

    def check(self) -> Holder | None:
        """Let a connection pass although the last one waits, and return one to be closed, if any.

        It must be called once a second.
        """
        was_passed, self._was_passed = self._was_passed, None
        if self._passed is None or self.held_bytes <= 2 * self.limit_bytes:
            self.let_one_pass()
            return None
        self._was_passed = self._passed
        return self._passed if self._passed is was_passed else None

    def pass_next(self) -> None:
        """Call `let_one_pass` unless the last connection to pass waits for its answer."""
        if self._passed is None:
            self.let_one_pass()

    def let_one_pass(self) -> None:
        """Let the first waiting connection that can finish its request read the rest.

        Connections that wait for an answer or for their client are skipped, since they would block
        the other connections forever.
        """
        if self._passing is not None and not self._passing.can_finish:
            self._passing = None
        if self._passing is None:
            holder = next((each for each in self._waiting if each.can_finish), None)
            if holder is not None:
                del self._waiting[holder]
                self._passing = holder
                holder.budget_allows()
