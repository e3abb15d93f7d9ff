"""What the requests of all clients may take of one turn of the event loop.

Each of them is short, but a thousand may become readable in one turn, or an append may free a
thousand that waited; the loop runs them all before it looks at other sockets and timers. So all
that is done for a client, a request that begins or an answer that is due, is done while there is
time left of SHARE_S, and else put in one line, first come, first served, for the turns that follow.

What cannot be stopped in the middle, because a task of the loop does it in the next turn, is
charged before, by an estimate. Jobs in slices have a share of their own (`sliced_work`), and so
have other brokers, whose messages wait for nobody here.
"""

import asyncio
from collections import deque
from collections.abc import Callable

SHARE_S = 0.004
WAKE_UP_S = 0.001  # what a task that waited does when it goes on in the next turn, about


class TurnShare:
    """The share of one event loop; `clock` is that of its `SlicedWork`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: deque[Callable[[], object]] = deque()
        self._deadline = 0.0
        self._is_counting = False  # since something was done in this turn

    def is_spent(self) -> bool:
        """Whether what comes now has to wait for a later turn: `put` it in the line."""
        if self._is_counting:
            return self._clock() >= self._deadline
        self._begin()
        return False

    def put(self, action: Callable[[], object]) -> None:
        """Do it in a later turn, after all that waits already."""
        self._waiting.append(action)
        if not self._is_counting:
            self._begin()

    def do(self, action: Callable[[], object]) -> None:
        """Do it now, or if the share is spent later."""
        if self.is_spent():
            self._waiting.append(action)
        else:
            action()

    async def room(self) -> None:
        """Return in a turn that has time left."""
        if self.is_spent():
            granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(lambda: self._grant(granted))
            await granted

    def charge(self, seconds: float) -> None:
        """So much will be done in the next turn, and nobody will be asked whether it may."""
        self._deadline -= seconds

    def _grant(self, granted: "asyncio.Future[None]") -> None:
        if not granted.done():
            granted.set_result(None)
            self.charge(WAKE_UP_S)

    def _begin(self) -> None:
        self._is_counting = True
        self._deadline = self._clock() + SHARE_S
        # The loop calls it before it looks at sockets again.
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_counting = False
        if self._waiting:
            self._begin()
            while self._waiting and self._clock() < self._deadline:
                self._waiting.popleft()()
