"""Virtual time for asyncio, with one queue of events and an event loop for each process.

All loops share one `Timeline`, which runs one callback after the other and advances the time to the
next timer. During a callback the loop of its process is the running loop, so coroutines run
unchanged. The events of a process can be dropped (`kill`) or held (`pause`), like SIGKILL and
SIGSTOP.

The seed determines the order of all events. Events of the same time run in the order in which they
were scheduled. Each event is added to a hash, the trace of the run.
"""

import asyncio
import contextlib
import contextvars
import heapq
import random
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from time import thread_time
from typing import Any

from .virtual_threads import AT_ONE_INSTANT, SYNC_S, Job, Stopped, Threads

LONG_SYNC_S = 0.01
LOOK_S = 0.02  # how often a run checks its condition


class Handle:
    """A scheduled call that can be cancelled, in place of asyncio.TimerHandle."""

    __slots__ = ("_args", "_callback", "_context", "_is_cancelled", "_when", "loop")

    def __init__(
        self,
        loop: "ProcessLoop",
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self.loop = loop
        self._when = when
        self._callback = callback
        self._args = args
        self._context = context
        self._is_cancelled = False

    def cancel(self) -> None:
        self._is_cancelled = True
        self._callback = _nothing
        self._args = ()

    def cancelled(self) -> bool:
        return self._is_cancelled

    def when(self) -> float:
        return self._when

    def run(self) -> None:
        try:
            if self._context is None:
                self._callback(*self._args)
            else:
                self._context.run(self._callback, *self._args)
        except Stopped:
            pass
        except Exception as error:
            self.loop.failed(f"{self._callback!r} raised {error!r}", error)


def _words_of(callback: Any) -> str:
    """Return the name of a callback's function, or of the coroutine of its task."""
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return getattr(task.get_coro(), "__qualname__", repr(task))
    return getattr(callback, "__qualname__", repr(callback))


def _nothing(*_: Any) -> None:
    pass


class Timeline:
    """The virtual clock, the queue of events, the random generator and the trace of a run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.at_one_instant = self.random.choice(AT_ONE_INSTANT)
        self.sync_s = self.random.choice(SYNC_S)
        if self.sync_s > LONG_SYNC_S:  # otherwise most of these would take no time
            self.at_one_instant = min(AT_ONE_INSTANT)
        self.now = 1_000.0
        self.events = self.tasks = self.jobs = 0
        self.trace = 0
        self.step_cpu_s = float("inf")  # the CPU time that one callback may take
        self.long_steps: list[tuple[int, float, str]] = []  # process, seconds, callback
        self.log: list[str] | None = None  # the steps of a run whose trace is compared as text
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._count = 0

    @property
    def now_ns(self) -> int:
        """Return the virtual monotonic time in nanoseconds."""
        return round(self.now * 1e9)

    def note(self, *what: int) -> None:
        """Add numbers with the current time to the trace."""
        self.trace = hash((self.trace, self.now, what))
        if self.log is not None:
            self.log.append(f"{self.now:.6f} {what}")

    def soon(self, handle: Handle) -> None:
        self._ready.append(handle)

    def later(self, when: float, handle: Handle) -> None:
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, handle))

    def run(
        self,
        seconds: float,
        until: Callable[[], bool] | None = None,
        each: Callable[[], None] | None = None,
        every: int = 120,
    ) -> bool:
        """Run events for this virtual time, or until `until` returns True.

        `each` is called after every `every` events. Returns whether `until` returned True, or True
        without `until`.
        """
        ready, timers, end = self._ready, self._timers, self.now + seconds
        running: ProcessLoop | None = None
        left, look_at = every, self.now
        limit_s, cpu_s = self.step_cpu_s, thread_time()
        before = events._get_running_loop()
        try:
            while True:
                if ready:
                    handle = ready.popleft()
                else:
                    if until is not None and self.now >= look_at:
                        if until():
                            return True
                        look_at, cpu_s = self.now + LOOK_S, thread_time()
                    if not timers or timers[0][0] > end:
                        self.now = max(self.now, end)
                        return until is None or until()
                    when, _, handle = heapq.heappop(timers)
                    if handle._is_cancelled:
                        continue
                    if when > self.now:
                        self.now = when
                    self.note(1, handle.loop.number)
                loop = handle.loop
                if loop.is_stopped:
                    if loop.is_alive:
                        loop.held.append(handle)
                    continue
                if handle._is_cancelled:
                    continue
                if loop is not running:
                    events._set_running_loop(loop)  # type: ignore[arg-type]
                    running = loop
                self.events += 1
                callback = handle._callback
                handle.run()
                # The CPU time is read once a step: reading takes 1 us, a fiftieth of a step.
                began_s, cpu_s = cpu_s, thread_time()
                if cpu_s - began_s > limit_s:
                    self._took_long(loop, callback, cpu_s - began_s)
                left -= 1
                if left <= 0:
                    left = every
                    if each is not None:
                        each()
                        cpu_s = thread_time()
        finally:
            events._set_running_loop(before)

    def _took_long(self, loop: "ProcessLoop", callback: Any, spent_s: float) -> None:
        if not isinstance(getattr(callback, "__self__", None), Threads):  # a job, at one instant
            self.long_steps.append((loop.number, spent_s, _words_of(callback)))


class NumberedTask(asyncio.Task):  # type: ignore[type-arg]
    """A task with a number as its hash, so that the order of sets does not depend on addresses."""

    def __init__(self, coro: Any, *, loop: "ProcessLoop", **keywords: Any) -> None:
        loop.timeline.tasks += 1
        self._number = loop.timeline.tasks
        super().__init__(coro, loop=loop, **keywords)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return self._number


class ProcessLoop(asyncio.AbstractEventLoop):
    """The event loop of one process. `network` makes its servers and connections."""

    def __init__(self, timeline: Timeline, number: int, network: Any = None) -> None:
        self.timeline = timeline
        self.number = number
        self.network = network
        self.is_alive = True
        self.is_stopped = False  # paused or dead: nothing runs
        self.held: deque[Handle] = deque()
        self.failures: list[str] = []
        self.slowness = 1.0  # of its disk
        self.jobs: set[Job] = set()  # jobs of its threads that are not finished
        self._default_executor = Threads(self)

    # -- life

    def kill(self) -> None:
        """Kill the process. Its callbacks and jobs never run again."""
        self.is_alive, self.is_stopped = False, True
        self.held.clear()
        jobs, self.jobs = sorted(self.jobs, key=lambda job: job.number), set()
        for job in jobs:
            job.stop()

    def pause(self) -> None:
        """Hold all events of the process until `resume`."""
        self.is_stopped = True

    def resume(self) -> None:
        """Run the events that were held since `pause`, in their order."""
        if self.is_alive and self.is_stopped:
            self.is_stopped = False
            held, self.held = self.held, deque()
            for handle in held:
                self.timeline.soon(handle)

    def failed(self, what: str, error: BaseException | None = None) -> None:
        """Record an error that was not handled."""
        if self.is_alive:
            self.failures.append(what if error is None else f"{what}{_where(error)}")

    # -- scheduling

    def time(self) -> float:
        return self.timeline.now

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Handle:  # type: ignore[override]
        handle = Handle(self, 0.0, callback, args, context or contextvars.copy_context())
        self.timeline._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> Handle:
        return self.call_at(self.timeline.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> Handle:
        timeline = self.timeline
        if when < timeline.now:
            when = timeline.now
        handle = Handle(self, when, callback, args, context or contextvars.copy_context())
        timeline.later(when, handle)
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Any = None
    ) -> "asyncio.Task[Any]":
        return NumberedTask(coro, loop=self, name=name, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        future = (executor or self._default_executor).submit(func, *args)
        return asyncio.wrap_future(future, loop=self)

    # -- asyncio's interface

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return not self.is_alive

    def _timer_handle_cancelled(self, handle: Handle) -> None:
        pass

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, Stopped):
            what = context.get("task") or context.get("future") or ""
            self.failed(f"{context.get('message')} {str(what)[:200]}", error)

    async def shutdown_asyncgens(self) -> None:
        pass

    # -- the outside

    async def create_server(
        self,
        protocol_factory: Any,
        host: Any = None,
        port: Any = None,
        *,
        sock: Any = None,
        **_: Any,
    ) -> Any:
        return self.network.listen(self, protocol_factory, sock)

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        return await self.network.connect(self, protocol_factory, host, port)

    async def create_unix_server(self, protocol_factory: Any, path: Any = None, **_: Any) -> Any:
        """Return a stand-in for the admin socket's server, to which no client connects."""
        with open(path, "w"):
            pass
        return _Door()


class _Door:
    def close(self) -> None:
        pass


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    with contextlib.suppress(AttributeError):
        code = trace.tb_frame.f_code  # type: ignore[union-attr]
        return f" ({error!r} in {code.co_filename.rpartition('/')[2]}:{trace.tb_lineno})"  # type: ignore[union-attr]
    return ""
