"""The memory budget of all connections, for requests and unsent answers.

Above the limit, a connection that holds more than a small allowance is not read until other
connections release memory, and one read fills at most the allowance. If all held bytes belong to
incomplete requests, no connection can release memory. A few clients may also hold the memory by
requests that wait for long. So the connection that waited longest may finish its request, one
connection at a time. A client that has sent nothing more is skipped. The next connection follows
when that client sends nothing more for now, when its request is answered, or a second later.

Above twice the limit, the next connection follows only after the answer, unless the silent client
has sent little. If the answer takes longer than a second or two and another connection waits, the
request loses its connection. So the bytes of requests stay below twice the limit + connections * 2
* allowance + one request, and there is no deadlock.
"""

from typing import Protocol

ALLOWANCE_BYTES = 128 * 1024


class Holder(Protocol):
    """The part of a connection that `MemoryBudget` uses."""

    held_bytes: int  # the bytes of unanswered requests, complete or not

    @property
    def can_finish(self) -> bool:
        """Return whether only the memory budget keeps the rest of a request from being read."""
        ...

    @property
    def has_sent_more(self) -> bool:
        """Return whether bytes of the client have arrived that were not read."""
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
        self._silent: dict[Holder, None] = {}  # those that wait, and whose client sent no more
        self._passing: Holder | None = None
        self._passed: Holder | None = None  # the last connection to pass, until it is answered
        self._was_passed: Holder | None = None  # this connection at the last call of `check`

    @property
    def waiting_count(self) -> int:
        """The number of connections that wait for memory."""
        return len(self._waiting) + len(self._silent)

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
        if self.held_bytes <= self.limit_bytes:
            self._passing = self._passed = None
            if self._waiting or self._silent:
                waiting, self._waiting, self._silent = self._waiting | self._silent, {}, {}
                for each in waiting:
                    each.budget_allows()
        elif holder is not None and holder is self._passed and not _is_large(holder):
            self._passed = None
            self.pass_next()

    def must_wait(self, holder: Holder) -> bool:
        """Return whether a connection must stop reading for now.

        A connection that waits calls this method again after its answers.
        """
        self._silent.pop(holder, None)
        is_within = self.held_bytes <= self.limit_bytes
        if is_within or holder is self._passing or not _is_large(holder):
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
        """Note that a connection receives no more of the request for which it has passed."""
        if holder is self._passing:
            self._passing, self._passed, self._was_passed = None, holder, None

    def remove(self, holder: Holder) -> None:
        """Forget a connection that is closed. Its bytes are released later."""
        self._waiting.pop(holder, None)
        self._silent.pop(holder, None)
        self.finished_request(holder)
        if holder is self._passed:
            self._passed = None
            self.pass_next()

    def pass_next(self) -> None:
        """Let a connection pass unless the last one still reads or waits for its answer."""
        self._look_at_passing()
        if self._passed is None:
            self._let_one_pass()

    def look_at(self, holder: Holder) -> None:
        """Let a silent connection wait for its turn again if its client has sent more.

        It must be called once a second for each connection.
        """
        if holder in self._silent and holder.has_sent_more:
            del self._silent[holder]
            self._waiting[holder] = None

    def check(self) -> Holder | None:
        """Let a connection pass although the last one waits, and return one to be closed, if any.

        It must be called once a second.
        """
        self._look_at_passing()
        passed, was_passed, self._was_passed = self._passed, self._was_passed, None
        if passed is None or not self._is_far_above:
            self._let_one_pass()
            return None
        self._was_passed = passed
        return passed if passed is was_passed and self._next() is not None else None

    def _look_at_passing(self) -> None:
        """Note a connection that cannot read on, or let it wait again if its client is slower.

        A connection that waits again keeps what it has received. So above twice the limit a
        connection with a larger part does not wait again. A silent client is then disconnected
        (`Connection.is_late`).
        """
        passing = self._passing
        if passing is None:
            return
        if not passing.can_finish:  # it closes, or its client does not read
            self.finished_request(passing)
        elif passing.has_sent_more or (
            self._is_far_above and passing.held_bytes > 2 * ALLOWANCE_BYTES
        ):
            return
        elif self._next() is not None:
            self._passing = None

    @property
    def _is_far_above(self) -> bool:
        return self.held_bytes > 2 * self.limit_bytes

    def _let_one_pass(self) -> None:
        if self._passing is None and (holder := self._next()) is not None:
            del self._waiting[holder]
            self._passing = holder
            holder.budget_allows()

    def _next(self) -> Holder | None:
        """Return the first waiting connection that can finish its request.

        Connections that wait for an answer or for their client are skipped, since they would block
        the other connections forever. To ask for the unread bytes takes 3 us, so it is not repeated
        for a silent connection before `look_at`.
        """
        silent: list[Holder] = []
        found = None
        for each in self._waiting:
            if each.can_finish:
                if each.has_sent_more:
                    found = each
                    break
                silent.append(each)
        for each in silent:
            del self._waiting[each]
            self._silent[each] = None
        return found


def _is_large(holder: Holder) -> bool:
    return holder.held_bytes > ALLOWANCE_BYTES
