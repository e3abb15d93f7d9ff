"""What the requests of all clients may take of one turn of the event loop.

Each of them is short, but a thousand may become readable in one turn, or an append may free a
thousand that waited; the loop runs them all before it looks at other sockets and timers. So all
that is done for a client, a request that begins or an answer that is due, is done while there is
time left of SHARE_S, and else put in one line, first come, first served, for the turns that follow.
What a new connection asks first stands in a line of its own, which has the first half of each turn:
it does not wait for all that older connections have sent ahead.

What cannot be stopped in the middle, because a task of the loop does it in the next turn, is
charged before, by an estimate. Jobs in slices have a share of their own (`sliced_work`), and so
have other brokers, whose messages wait for nobody here.

To be called at the beginning of each turn costs two microseconds. So nobody is, until somebody
waits: before that, a turn is known by the loop's having had nothing of ours to do for IDLE_S.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf

SHARE_S = 0.004
IDLE_S = 0.0001  # two requests of one turn are closer to each other
WAKE_UP_S = 0.001  # what a task that waited does when it goes on in the next turn, about


class TurnShare:
    """The share of one event loop; `clock` is that of its `SlicedWork`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._waiting: deque[Callable[[], object]] = deque()
        self._early: deque[Callable[[], object]] = deque()
        self._deadline = 0.0
        self.began_s = 0.0  # when it was asked whether the share is spent
        self._ended_s = -inf  # when the last action ended
        self._is_counting = False  # `_next_turn` will be called

    def is_spent(self) -> bool:
        """Whether what comes now has to wait for a later turn; if not, say when it has `ended`."""
        now = self.began_s = self.clock()
        if not self._is_counting and now > self._ended_s + IDLE_S:
            self._deadline = now + SHARE_S
        return now >= self._deadline

    def has_room(self) -> bool:
        """Whether what may take long has time left; if not, it is done elsewhere."""
        self._count()  # answers that come in the midst of it would each begin a share of their own
        return not self.is_spent()

    def ended(self) -> None:
        """What was begun here has been done, or will go on by itself."""
        self._ended_s = self.clock()

    def put(self, action: Callable[[], object], *, is_early: bool = False) -> None:
        """Do it in a later turn, after all that waits already, or after all that is early."""
        (self._early if is_early else self._waiting).append(action)
        self._count()

    def do(self, action: Callable[[], object]) -> None:
        """Do it now, or if the share is spent later."""
        if self.is_spent():
            self.put(action)
        else:
            action()
            self.ended()

    async def room(self) -> None:
        """Return in a turn that has time left."""
        self._count()
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

    def _count(self) -> None:
        """Know each turn by its beginning, from the next one on."""
        if not self._is_counting:
            self.is_spent()
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """The loop calls it before it looks at its sockets again."""
        self._is_counting = False
        self._deadline = self.clock() + SHARE_S
        if self._waiting or self._early:
            self._count()
            if self._early:
                self._serve(self._early, SHARE_S / 2)
                if self._waiting:  # whatever those have charged, the others have their half
                    self._deadline = max(self._deadline, self.clock() + SHARE_S / 2)
            self._serve(self._waiting)
            self._serve(self._early)

    def _serve(self, line: deque[Callable[[], object]], kept_s: float = 0.0) -> None:
        """Do what waits in a line, but keep some time; what it does may charge the turn."""
        while line and self.clock() < self._deadline - kept_s:
            line.popleft()()
