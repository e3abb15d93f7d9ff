"""Work that grows, done in slices, so that nothing keeps a broker's event loop.

A broker that is deaf for a session is dead to the others. So what grows with what is asked, stored
or replicated is written as a *generator*: it yields wherever others may run, at least every half
millisecond of work, and returns its result. It knows neither loop nor clock, so cores can be
written that way. `SlicedWork` runs such generators on the loop: all jobs together get SLICE_S of
each turn, one after the other, and between two turns the loop serves sockets and timers.

What a generator has read before a yield may have changed after it: it looks again, or holds a
copy. What only waits (fsync, decompression, a checksum over megabytes) is for an executor instead.
docs/decisions/0007-the-budget-of-the-loop.md has the whole of it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ..wire.steps import Result, Steps, run_to_end
from .turn_share import WAKE_UP_S, TurnShare

__all__ = ["SlicedWork", "Steps", "run_to_end"]

SLICE_S = 0.004  # of one turn of the loop, for all jobs together


class SlicedWork:
    """The jobs of one event loop. `clock` gives seconds; the simulator ends slices by seed.

    `share` is for what is short: requests that begin, and answers that are due.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.running = ""  # the name of the job whose slice this is
        self.clock = clock
        self.share = TurnShare(clock)
        self._jobs: deque[tuple[str, Steps[Any], asyncio.Future[Any]]] = deque()
        self._is_scheduled = False

    def run(self, name: str, steps: Steps[Result]) -> "asyncio.Future[Result]":
        """Begin a job in the next turn; the future has its result, or what it raised.

        A future that is cancelled ends the job at its next yield. The watchdog names the job by
        `name`.
        """
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._jobs.append((name, steps, future))
        self._schedule()
        return future

    async def finish(self, name: str, steps: Steps[Result]) -> Result:
        """The result of steps: of short ones, which end before their first yield, at once."""
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        return await self.run(name, steps)

    def begin(self, name: str, steps: Steps[None]) -> None:
        """As `finish`, for what nobody waits for."""
        if next(steps, self) is not self:
            self.run(name, steps)

    def close(self) -> None:
        """End all jobs where they stand; who waits for one is cancelled."""
        jobs, self._jobs = self._jobs, deque()
        for _, steps, future in jobs:
            steps.close()
            future.cancel()

    def _schedule(self) -> None:
        if self._jobs and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        deadline = self.clock() + SLICE_S
        while self._jobs and self.clock() < deadline:
            name, steps, future = self._jobs.popleft()
            if future.cancelled():
                steps.close()
                continue
            self.running = name
            try:
                while True:
                    next(steps)
                    if self.clock() >= deadline:
                        self._jobs.append((name, steps, future))
                        break
            except StopIteration as end:
                deadline -= WAKE_UP_S  # of who waited for it
                if not future.cancelled():
                    future.set_result(end.value)
            except Exception as error:
                if not future.cancelled():
                    future.set_exception(error)
        self.running = ""
        self._schedule()
