"""Jobs that the engine runs outside its turns, in executors or in slices on the event loop.

The journal has its own thread, so that no other job delays a commit. Snapshots and segments, which
are slow, share other threads. Results return to the event loop through `settle`.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from ...runtime.sliced_work import SlicedWork, Steps

T = TypeVar("T")
FIRST_SLICE_S = 0.002
Settle = Callable[[Callable[[], None]], None]


class Jobs:
    """The jobs of one engine.

    settle: gets a function that handles a job's result, or raises its error.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settle: Settle,
        *,
        journal: Executor,
        files: Executor,
        work: SlicedWork,
    ) -> None:
        self._loop = loop
        self._settle = settle
        self._journal = journal
        self._files = files
        self._work = work
        self._blocking: set[Future[Any]] = set()
        self._sliced: set[asyncio.Future[Any]] = set()

    def run_blocking(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        """Run a job with file access in an executor, and then call `done` with its result."""
        self._submit(self._files, job, done)

    def write_journal(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        """Run a job of the journal in its own executor, and then call `done` with its result."""
        self._submit(self._journal, job, done)

    def run_steps(self, name: str, steps: Steps[T], done: Callable[[T], None]) -> None:
        """Run a job on the event loop in slices, and then call `done` with its result."""
        future = self._work.run(name, steps)
        self._sliced.add(future)

        def ended(future: asyncio.Future[T]) -> None:
            self._sliced.discard(future)
            if not future.cancelled():
                self._settle(lambda: done(future.result()))

        future.add_done_callback(ended)

    def begin_steps(self, name: str, steps: Steps[T], done: Callable[[T], None]) -> None:
        """Begin a job on the event loop.

        Steps are run here for up to FIRST_SLICE_S, so a short job has ended when this returns.
        """
        clock = self._work.clock
        deadline = clock() + FIRST_SLICE_S
        try:
            while clock() < deadline:
                next(steps)
        except StopIteration as end:
            done(end.value)
        else:
            self.run_steps(name, steps, done)

    def cancel_sliced(self) -> None:
        """Stop the jobs on the event loop after their current step, without a result."""
        for future in self._sliced:
            future.cancel()

    async def drain(self) -> None:
        """Wait until the executors have finished their jobs."""
        while self._blocking:
            ended, _ = await asyncio.wait([asyncio.wrap_future(job) for job in self._blocking])
            for job in ended:  # asyncio requires the exception to be retrieved here, too
                _ = job.cancelled() or job.exception()

    def _submit(self, executor: Executor, job: Callable[[], T], done: Callable[[T], None]) -> None:
        def ended(future: Future[T]) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(settled, future)

        def settled(future: Future[T]) -> None:
            self._blocking.discard(future)
            self._settle(lambda: done(future.result()))

        future = executor.submit(job)
        self._blocking.add(future)
        future.add_done_callback(ended)
