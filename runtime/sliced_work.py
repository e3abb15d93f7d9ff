"""Work that grows with its input, run in slices that fit the event loop's budget.

A broker that does not answer within its session timeout is fenced. Therefore work that grows with a
request, with the stored data or with the metadata is written as a *generator*. A generator yields
where other work may run, at least every half millisecond, and returns its result. It uses neither
loop nor clock, so pure code can be written in this form. `SlicedWork` runs such generators on the
loop. All jobs together get SLICE_S of each turn, and between two turns the loop serves sockets and
timers.

There are two queues, each first come, first served. The broker's own jobs (roles, commands of the
metadata, replay of groups, truncations, checkpoints) come first, because clients wait for them. The
jobs of clients get at least CLIENTS_S of each turn, so the broker's own jobs cannot starve them. A
job that has run for its queue's `run_s` goes to the end of the queue. OWN_RUN_S is short, so the
broker's jobs alternate. CLIENT_RUN_S is longer than most answers take. The first of many answers is
then ready after its own time, not after the time of all answers, while a very long answer delays
the others only briefly. The order within a queue only affects latency. Code that needs one job to
finish before another must wait for it, and the simulator continues any job of a queue.

Values that a generator has read before a yield may have changed after the yield, so the generator
reads them again or keeps a copy. Work that only waits (fsync, decompression, a checksum over
megabytes) belongs in an executor. docs/decisions/0007-the-budget-of-the-loop.md explains this in
full.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from .spent_time import SpentTime
from .steps import Result, Steps, run_to_end
from .turn_share import WAKE_UP_S, TurnShare

__all__ = ["SlicedWork", "Steps", "WorkLine", "run_to_end"]

SLICE_S = 0.004  # of one turn of the loop, for all jobs together
CLIENTS_S = 0.001  # of this time, at least, for the jobs of clients
OWN_RUN_S = 0.004
CLIENT_RUN_S = 0.05


class _Job:
    """A generator in a queue. `ran_s` is its running time since it was last put at the end."""

    __slots__ = ("future", "name", "ran_s", "steps")

    def __init__(self, name: str, steps: Steps[Any], future: asyncio.Future[Any]) -> None:
        self.name, self.steps, self.future = name, steps, future
        self.ran_s = 0.0


class WorkLine:
    """A queue of jobs, which run in slices on one event loop.

    `share` limits the short pieces of client work that are no jobs, such as new requests.
    """

    def __init__(self, run_s: float, share: TurnShare, schedule: Callable[[], None]) -> None:
        self.run_s, self.share = run_s, share
        self._schedule_turn = schedule
        self._jobs: deque[_Job] = deque()

    @property
    def has_jobs(self) -> bool:
        """Return whether any job waits."""
        return bool(self._jobs)

    def run(self, name: str, steps: Steps[Result]) -> "asyncio.Future[Result]":
        """Queue a job, which begins in the next turn of the event loop.

        Returns a future, which gets the job's result or exception. A cancelled future ends the job
        at its next yield. The watchdog shows the job's `name`.
        """
        if SpentTime.running is not None:
            steps = SpentTime.running.steps(steps)
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._jobs.append(_Job(name, steps, future))
        self._schedule_turn()
        return future

    async def finish(self, name: str, steps: Steps[Result]) -> Result:
        """Run steps and return their result. The first step runs now, and the rest in slices."""
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        return await self.run(name, steps)

    def begin(self, name: str, steps: Steps[None]) -> None:
        """Run the first step now, and queue the rest as a job. The result is dropped."""
        if next(steps, self) is not self:
            self.run(name, steps)

    def first(self) -> _Job:
        """Remove the next job from the queue, and return it."""
        return self._jobs.popleft()

    def put_back(self, job: _Job) -> None:
        """Put a job back at the front, or at the end if it has run for `run_s`."""
        if job.ran_s < self.run_s:
            self._jobs.appendleft(job)
        else:
            job.ran_s = 0.0
            self._jobs.append(job)

    def end_jobs(self) -> None:
        """Close all jobs at their current yield and cancel their futures."""
        jobs, self._jobs = self._jobs, deque()
        for job in jobs:
            job.steps.close()
            job.future.cancel()


class SlicedWork(WorkLine):
    """All jobs of one event loop. The object itself is the queue of the broker's own jobs.

    `clock` returns seconds. In the simulation, a clock that depends on the seed ends the slices.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(OWN_RUN_S, TurnShare(clock), self._schedule)
        self.running = ""  # the name of the job that is running
        self.clock = clock
        self.clients = WorkLine(CLIENT_RUN_S, self.share, self._schedule)
        self._is_scheduled = False

    def close(self) -> None:
        """Close all jobs at their current yield and cancel their futures."""
        self.end_jobs()
        self.clients.end_jobs()

    @property
    def is_due(self) -> bool:
        """Return whether jobs wait and no turn of the event loop is scheduled for them yet."""
        return not self._is_scheduled and (self.has_jobs or self.clients.has_jobs)

    def _schedule(self) -> None:
        if self.is_due:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        for_clients_s = CLIENTS_S if self.clients.has_jobs else 0.0
        left_s = self._spend(self, SLICE_S - for_clients_s)
        self._spend(self.clients, left_s + for_clients_s)
        self._schedule()

    def _spend(self, line: WorkLine, seconds: float) -> float:
        """Run the jobs of a queue for about `seconds`, and return the seconds that are left."""
        if not line.has_jobs:
            return seconds
        deadline = self.clock() + seconds
        while line.has_jobs and (now := self.clock()) < deadline:
            job = line.first()
            if job.future.cancelled():
                job.steps.close()
                continue
            self.running = job.name
            began, until = now, min(deadline, now + line.run_s - job.ran_s)
            try:
                while True:  # at least one step, since the rest of a run may round to 0
                    next(job.steps)
                    if (now := self.clock()) >= until:
                        break
                job.ran_s += now - began
                line.put_back(job)
            except StopIteration as end:
                deadline -= WAKE_UP_S  # for the task that has waited for the result
                if not job.future.cancelled():
                    job.future.set_result(end.value)
            except Exception as error:
                if not job.future.cancelled():
                    job.future.set_exception(error)
        self.running = ""
        return max(0.0, deadline - self.clock())
