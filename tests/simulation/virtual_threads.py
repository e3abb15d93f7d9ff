"""Threads of simulated processes. Their jobs take virtual time while the event loop runs.

A job runs in a real thread, but only one thread runs at a time. A job may stop at a pause point,
which is a replaced function of `os` or a lock that is held. In some jobs each line of product code
is a pause point. While the job is stopped the timeline runs other events, and later resumes the
job. The seed determines the places and lengths of the pauses.

When a process is killed, `Stopped` is raised in its jobs where they have paused.
"""

import random
import sys
from _thread import allocate_lock, start_new_thread
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol
from unittest import mock

import oncelog

SHORT_S = (0.00002, 0.0008)
SLOW_S = 0.06  # one job in a hundred
PAUSES_MAX = 40  # of a job; after these the job is done at one instant
IMPORTS = "<frozen importlib._bootstrap>"  # the file of the functions that import a module
PAUSE_S = (0.00001, 0.05)
PAUSE_MAX_S = 2.0  # a slow disk is not slow for long after it was healed
AT_ONE_INSTANT = (0.4, 0.8, 0.95)  # of the jobs; one of these for all of a run
SYNC_S = (0.0005, 0.0005, 0.02, 0.2)  # of a sync, on average; one of these for all of a run
BY_LINE = 0.15  # of the others: interrupted anywhere, not only at calls of the system
OPERATIONS_APART = (1, 1, 4, 20)
LINES_APART = (3, 30, 300, 3_000)
LOCK_WAIT_S = 0.0001
DEFAULT_THREADS = 6  # as asyncio has them on two processors
OWN_CODE = str(Path(oncelog.__file__).parent) + "/"
OWN_TESTS = OWN_CODE + "tests/"


class Stopped(BaseException):
    """Raised in the code of a process that is killed in the middle of a step."""


class Process(Protocol):
    """The part of a process's event loop that the jobs of this process use."""

    timeline: Any
    slowness: float
    jobs: set["Job"]

    def call_later(self, delay: float, callback: Any, *args: Any) -> Any: ...


def _nothing() -> None:
    pass


class _Thread:
    """A real thread that runs only between a call of `resume` and the next `pause`."""

    def __init__(self) -> None:
        self.work: Callable[[], object] = _nothing
        self._go, self._back = allocate_lock(), allocate_lock()
        self._go.acquire()
        self._back.acquire()
        start_new_thread(self._run, ())

    def resume(self) -> None:
        """Let the thread run until it pauses or its work is done."""
        self._go.release()
        self._back.acquire()

    def pause(self) -> None:
        """Let the caller of `resume` continue, and wait for the next `resume`.

        This is called in the thread itself.
        """
        self._back.release()
        self._go.acquire()

    def _run(self) -> None:
        while True:
            self._go.acquire()
            self.work()
            self._back.release()


_idle: list[_Thread] = []
_current: "Job | None" = None  # the running job, or None in the timeline's thread
_killer: "Job | None" = None  # the job in which its own process is being killed


class Job:
    """A call in a thread. `step` runs it to its next pause (True) or to its end (False)."""

    def __init__(
        self, number: int, rng: random.Random, process: Process, call: Callable[[], Any]
    ) -> None:
        self.number = number
        self.result: Any = None
        self.error: BaseException | None = None
        self.pause_s = 0.0  # the length of the pause that has just begun
        self._call, self._random, self._process = call, rng, process
        self._pauses_left = PAUSES_MAX
        self._is_stopped = self._is_in_haste = self._is_done = False
        self._is_traced = rng.random() < BY_LINE
        self._mean = rng.choice(LINES_APART if self._is_traced else OPERATIONS_APART)
        self._left = self._draw()
        self._thread = _idle.pop() if _idle else _Thread()
        self._thread.work = self._run

    def step(self) -> bool:
        global _current
        before, _current = _current, self
        try:
            self._thread.resume()
        finally:
            _current = before
        if self._is_done:
            self._thread.work = self._call = _nothing  # they hold the job's objects
            _idle.append(self._thread)
        return not self._is_done

    def finish(self) -> None:
        """Run the job to its end without further pauses."""
        self._is_in_haste = True
        while not self._is_done:
            self.step()

    def stop(self) -> None:
        self._is_stopped = True
        if self is not _killer:  # the killer itself raises Stopped when the kill is done
            self.finish()

    def at_point(self, sync_s: float = 0.0) -> None:
        """Let the job pause at random, or for `sync_s` on average. The job's own thread calls this.

        Raises Stopped if the process was killed.
        """
        if self._is_stopped:
            raise Stopped
        if self._is_in_haste:
            return
        if sync_s:
            self._pause(sync_s)
        elif not self._is_traced:
            self._left -= 1
            if self._left < 0:
                self._pause()

    def wait_for(self, holder: "Job | None") -> None:
        """Wait in the job's thread while `holder` has a lock that this job needs."""
        if self._is_stopped:
            raise Stopped
        if self._is_in_haste:
            if holder is not None:
                holder.finish()
            return
        self.pause_s = LOCK_WAIT_S
        self._thread.pause()

    def _pause(self, mean_s: float = 0.0) -> None:
        self._left = self._draw()
        if not self._pauses_left:
            return
        self._pauses_left -= 1
        low, high = PAUSE_S
        pause_s = low * (high / low) ** self._random.random()
        if mean_s:
            pause_s = self._random.expovariate(1 / mean_s)
        # The disk's present slowness counts, not the one when the job began.
        self.pause_s = min(PAUSE_MAX_S, pause_s * self._process.slowness**0.5)
        self._thread.pause()
        if self._is_stopped:
            raise Stopped

    def _draw(self) -> int:
        return int(self._random.expovariate(1.0) * self._mean)

    def _run(self) -> None:
        if self._is_traced:
            sys.settrace(self._trace)
        try:
            self.result = self._call()
        except BaseException as error:  # also Stopped, which ends here
            self.error = error
        finally:
            sys.settrace(None)
            self._is_done = True

    def _trace(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        file = frame.f_code.co_filename
        return self._line if file.startswith(OWN_CODE) and not file.startswith(OWN_TESTS) else None

    def _line(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line" and not self._is_in_haste and not self._is_stopped:
            self._left -= 1
            if self._left < 0 and not _is_importing(frame):
                self._pause()
        return self._line


def _is_importing(frame: FrameType | None) -> bool:
    """Return whether a module is imported in this frame's thread.

    The lock of an import is a real one. If this thread paused, another thread that imports the
    module would wait for ever.
    """
    while frame is not None and frame.f_code.co_filename != IMPORTS:
        frame = frame.f_back
    return frame is not None


class Threads(Executor):
    """An executor for a simulated process. Each thread runs one job after the other."""

    def __init__(self, loop: Process, count: int = DEFAULT_THREADS) -> None:
        self._loop, self._free = loop, count
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def submit(self, job: Callable[..., Any], /, *args: Any, **keywords: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        self._waiting.append((future, lambda: job(*args, **keywords)))
        self._next()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing. A broker has awaited all its jobs before it calls this."""

    def _next(self) -> None:
        if not self._free or not self._waiting:
            return
        self._free -= 1
        rng, loop = self._loop.timeline.random, self._loop
        seconds = SLOW_S if rng.random() < 0.01 else rng.uniform(*SHORT_S)
        seconds = min(PAUSE_MAX_S, seconds * loop.slowness)
        begin = seconds * rng.random()
        loop.call_later(begin, self._begin, *self._waiting.popleft(), seconds - begin)

    def _begin(self, future: "Future[Any]", call: Callable[[], Any], seconds: float) -> None:
        rng, loop = self._loop.timeline.random, self._loop
        if not future.set_running_or_notify_cancel():
            self._ended(None, None, None)
        elif rng.random() < loop.timeline.at_one_instant:
            result = error = None
            try:
                result = call()
            except Exception as raised:
                error = raised
            loop.call_later(seconds, self._ended, future, result, error)
        else:
            loop.timeline.jobs += 1
            rng = random.Random(rng.getrandbits(64))
            job = Job(loop.timeline.jobs, rng, loop, call)
            loop.jobs.add(job)
            self._go_on(job, future, seconds)

    def _go_on(self, job: Job, future: "Future[Any]", seconds: float) -> None:
        loop = self._loop
        if not job._is_done and job.step():  # a lock's waiter may have finished the job
            loop.call_later(job.pause_s, self._go_on, job, future, seconds)
            return
        loop.jobs.discard(job)
        if not isinstance(job.error, Stopped):
            loop.call_later(seconds, self._ended, future, job.result, job.error)

    def _ended(
        self, future: "Future[Any] | None", result: Any, error: BaseException | None
    ) -> None:
        self._free += 1
        self._next()
        if future is not None:
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)


def pause_point(sync_s: float = 0.0) -> None:
    """Let the current job pause at random, or for `sync_s` on average if that is not 0."""
    if _current is not None:
        _current.at_point(sync_s)


@contextmanager
def outside() -> Iterator[None]:
    """Run code that kills a process as if it were outside of all jobs, inside the context."""
    global _current, _killer
    before = _current, _killer
    _current, _killer = None, _current
    try:
        yield
    finally:
        _current, _killer = before


class VirtualLock:
    """A replacement of threading.Lock, which a job may hold while it pauses."""

    def __init__(self) -> None:
        self._holder: Job | None = None
        self._is_locked = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        while self._is_locked:
            if not blocking:
                return False
            if _current is not None:
                _current.wait_for(self._holder)
            else:  # the loop is blocked until the job releases the lock
                assert self._holder is not None, "a lock is asked for again by who has it"
                self._holder.finish()
        self._is_locked, self._holder = True, _current
        return True

    def release(self) -> None:
        self._is_locked, self._holder = False, None

    def locked(self) -> bool:
        return self._is_locked

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


@contextmanager
def locks_are_virtual() -> Iterator[None]:
    """Replace the locks that product code creates by virtual ones while the context is open."""
    import threading

    real = threading.Lock

    def make() -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        return VirtualLock() if caller.startswith("oncelog.") else real()

    with mock.patch.object(threading, "Lock", make):
        yield
