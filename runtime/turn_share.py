"""The share of one turn of the event loop that the requests of all clients may use.

Each request is short, but a thousand requests may become readable in one turn, or an append may
complete a thousand waiting requests. The loop would run them all before it polls sockets and timers
again. Therefore work for a client (a new request, an answer that is due) runs only while some of
SHARE_S is left. Afterwards work is queued, first come, first served, for the following turns. The
first requests of a new connection have their own queue, which gets the first half of the share.
They do not wait behind all requests of older connections.

Work that a task of the loop does in the next turn cannot be interrupted there, so it is charged in
advance, by an estimate. Jobs in slices have their own share (`sliced_work`). Messages of other
brokers are never queued here.

The callback that begins the share of a turn (`_next_turn`) costs two microseconds, so it is
scheduled only if work is queued or a caller has asked for room. Otherwise a new turn is assumed if
no request has run for IDLE_S. Work within a running request, such as its answer, belongs to the
present share, even after IDLE_S.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf

SHARE_S = 0.004
IDLE_S = 0.0001  # two requests of one turn follow each other more closely
WAKE_UP_S = 0.001  # the estimated work of a task that waited and continues in the next turn


class TurnShare:
    """The time in each turn of the event loop that the requests of all clients may use.

    `clock` is the clock of the loop's `SlicedWork`.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._waiting: deque[Callable[[], object]] = deque()
        self._early: deque[Callable[[], object]] = deque()
        self._deadline = 0.0
        self.began_s = 0.0  # the time of the last `is_spent`
        self._ended_s = -inf  # the time at which the last action ended
        self._running = 0  # actions that have begun and not ended; the inner ones are of the outer
        self._is_counting = False  # True if `_next_turn` will be called

    def is_spent(self) -> bool:
        """Return whether new work must wait for a later turn of the event loop.

        If the result is False, the caller must do the work and then call `ended`.
        """
        now = self.began_s = self.clock()
        if not self._running and not self._is_counting and now > self._ended_s + IDLE_S:
            self._deadline = now + SHARE_S
        if now >= self._deadline:
            return True
        self._running += 1
        return False

    def has_room(self) -> bool:
        """Return whether this turn of the event loop has time left for a long piece of work.

        If it has, the caller must call `ended` after the work. If not, the caller must do the work
        in an executor or in a later turn.
        """
        self._count()  # answers in the meantime would each begin a new share
        return not self.is_spent()

    def ended(self) -> None:
        """Record the end of work that `is_spent` or `has_room` has allowed.

        The work is complete, or will continue without this share.
        """
        self._ended_s = self.clock()
        if self._running:
            self._running -= 1

    def put(self, action: Callable[[], object], *, is_early: bool = False) -> None:
        """Run an action in a later turn of the event loop, in the order of the calls.

        is_early: use the queue of new connections, which gets the first half of each turn's share.
        """
        (self._early if is_early else self._waiting).append(action)
        self._count()

    def do(self, action: Callable[[], object]) -> None:
        """Run an action now, or in a later turn of the event loop if this turn's share is spent."""
        if self.is_spent():
            self.put(action)
        else:
            action()
            self.ended()

    async def room(self) -> None:
        """Wait until a turn of the event loop has time left in its share."""
        self._count()
        if self.is_spent():
            granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(lambda: self._grant(granted))
            await granted

    def charge(self, seconds: float) -> None:
        """Subtract `seconds` from this turn's share, for work that will not ask `is_spent`."""
        self._deadline -= seconds

    def _grant(self, granted: "asyncio.Future[None]") -> None:
        if not granted.done():
            granted.set_result(None)
            self.charge(WAKE_UP_S)

    def _count(self) -> None:
        """Schedule `_next_turn` for the next turn of the event loop, unless it is scheduled."""
        if not self._is_counting:
            self.is_spent()
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """Begin the share of a new turn, and run waiting actions.

        The event loop calls this method.
        """
        self._is_counting = False
        self._running = 0  # also if a caller found room and had nothing to do
        self._deadline = self.clock() + SHARE_S
        if self._waiting or self._early:
            self._count()
            kept_s = 0.0
            if self._early:
                self._serve(self._early, SHARE_S / 2)
                # the others, and nothing else, get their half, however much was charged
                kept_s = max(0.0, self.clock() + SHARE_S / 2 - self._deadline)
            self._deadline += kept_s
            self._serve(self._waiting)
            self._deadline -= kept_s
            self._serve(self._early)

    def _serve(self, line: deque[Callable[[], object]], kept_s: float = 0.0) -> None:
        """Run the actions of a queue while more than `kept_s` of this turn's share is left."""
        while line and self.clock() < self._deadline - kept_s:
            line.popleft()()
