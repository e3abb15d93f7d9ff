"""An event loop in a thread of its own, for programs without an event loop.

Each synchronous client creates a loop for itself, after any fork of the program, and ends it. The
loop is a uvloop if uvloop is installed.

A loop that is still open when the program exits is stopped before the interpreter shuts down.
Otherwise a uvloop that wakes afterwards requests a lock that no longer exists, and the process ends
by SIGSEGV. If an exit handler closes a client after that stop, the work runs in the handler's
thread.
"""

import asyncio
import atexit
import contextlib
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from ..wire.errors import KafkaError
from .failures import FORKED, ClientClosed, tell_of_forks


class Closing(Protocol):
    async def close(self) -> None: ...

    def _drop(self) -> None:
        """Close all connections immediately."""


P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=Closing)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop event loop if uvloop is installed, else an asyncio one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


STOP_S = 5.0  # at the exit of a program, for a loop that is still busy
_unclosed: "weakref.WeakSet[LoopThread]" = weakref.WeakSet()


@atexit.register
def _stop_at_exit() -> None:
    with contextlib.ExitStack() as stack:  # a signal handler that raises ends only one stop
        for each in list(_unclosed):
            stack.callback(each.stop)


class _Call(Generic[T]):
    """A coroutine that the loop runs for a waiting thread.

    A signal handler may raise at any point of the wait. A raise inside a condition (of threading,
    of a concurrent future) can leave a lock held, and then the loop waits for that lock for ever. A
    bare lock is acquired atomically.
    """

    def __init__(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        self._work, self._loop = work, loop
        self._task: asyncio.Task[T] | None = None
        self._is_running = threading.Lock()
        self._is_running.acquire()

    def begin(self) -> asyncio.Task[T]:
        """Start the coroutine. This is called on the event loop, or while the loop is at rest."""
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(lambda _: self._is_running.release())
        return self._task

    def cancel(self) -> None:
        """Cancel the coroutine, or close it without a `begin`. This is called on the event loop."""
        self.drop()
        if self._task is not None:
            self._task.cancel()
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    def drop(self) -> None:
        """Close the coroutine unless it has begun."""
        if self._task is None:
            self._work.close()

    def result(self, timeout_s: float | None) -> T:
        """Wait for the result, or raise its error, CancelledError or TimeoutError."""
        if not self._is_running.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s)):
            raise TimeoutError
        assert self._task is not None
        if self._task.cancelled():
            raise CancelledError
        return self._task.result()


class LoopThread:
    """An event loop in a thread, which runs coroutines for callers in other threads."""

    loop: asyncio.AbstractEventLoop

    def __init__(self, name: str, *, starts: bool = True) -> None:
        """Create the thread. Without `starts`, the caller calls `start` next."""
        self._lock, self.is_ending = threading.RLock(), False  # reentrant for finalizers
        self.is_forked = False  # this process is a fork of the one that has the thread
        self._is_stopping = False  # the loop ends without closing anything
        self._is_stopped = False  # the loop is at rest, and any caller may run it
        self._is_closing = False
        self._ending: asyncio.Task[None] | None = None
        self._is_over = self._is_leaving = self._has_left = False
        self._waiters: list[threading.Lock] = []
        self._serves = threading.Lock()  # held by the thread, or by an interrupted start
        self._opened = threading.Lock()  # released when the thread has opened the loop, or failed
        self._opened.acquire()
        self._problem: BaseException | None = None
        self._has_opened = self._is_abandoned = False
        self.at_end: Callable[[], object] = lambda: None  # called as the last work of the loop
        # The running thread keeps this object, and thereby its place in `_unclosed`.
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        tell_of_forks(self)
        if starts:
            try:
                self.start()
            except BaseException:
                self._abandon()
                raise

    def start(self) -> None:
        """Start the thread and its loop, or leave neither behind if this is interrupted.

        The thread opens the loop, because signal handlers run in the main thread only.
        """
        try:
            self._thread.start()
            self._opened.acquire()
            _unclosed.add(self)
            if self._problem is not None:
                raise self._problem
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """End the thread and the loop after an interrupted start."""
        self.is_ending = self._is_abandoned = True
        has_begun = not self._serves.acquire(blocking=False)
        _unclosed.discard(self)
        if has_begun and self._has_opened:
            with contextlib.suppress(RuntimeError):  # the thread has closed the loop
                self.loop.call_soon_threadsafe(self._leave)

    def forked(self) -> None:
        """Make later calls fail in a forked child, since the thread belongs to the parent."""
        self.is_forked = True
        _unclosed.discard(self)

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine to its end. After a timeout cancel it and raise TimeoutError.

        Raises ClientClosed when the loop has ended, ends meanwhile, or belongs to another process.
        Raises RuntimeError in the loop's own thread, which would wait for itself.
        """
        call: _Call[T] | None = None
        try:
            self.refuse_own_thread()
            if self.is_forked:  # a thread of the parent may hold the lock
                raise ClientClosed(FORKED)
            with self._lock:  # a call after `close` would never run
                if self.is_ending:
                    raise ClientClosed("the client is closed")
                if self._is_stopping and not self.stop():
                    raise ClientClosed("the program ends, and the event loop is still busy")
                call = _Call(work, self.loop)
                if self._is_stopped:
                    waiting = asyncio.wait_for(call.begin(), timeout_s)
                    return self.loop.run_until_complete(waiting)
                with contextlib.suppress(RuntimeError):  # a signal handler has closed the loop
                    self.loop.call_soon_threadsafe(call.begin)
                if self.loop.is_closed():
                    raise ClientClosed("the client was closed meanwhile")
            return call.result(timeout_s)
        except CancelledError:
            if self.is_ending:
                raise ClientClosed("the client was closed meanwhile") from None
            raise
        except BaseException:  # a signal handler may also raise just before or after `begin`
            if call is None:
                work.close()
            else:
                try:
                    self.loop.call_soon_threadsafe(call.cancel)
                except RuntimeError:  # the loop is closed, so the call has ended or not begun
                    call.drop()
            raise

    def close(self) -> None:
        """Cancel all work on the loop, and end the loop and its thread.

        A repeated close has no effect, unless the first was interrupted by a signal handler.
        """
        self.refuse_own_thread()
        if self.is_forked or self._is_abandoned or not self._has_opened:
            return
        is_first = False
        try:
            with self._lock:
                if self._is_closing or self.loop.is_closed():
                    return
                self._is_closing = self.is_ending = is_first = True
                if self._is_stopping and not self.stop():
                    return
            if self._is_stopped:
                self.loop.run_until_complete(self._cancel_all())
                self.loop.close()
            else:
                with contextlib.suppress(RuntimeError):  # a former close has ended the loop
                    self.loop.call_soon_threadsafe(self._end)
                self._wait_for_thread(-1)
            _unclosed.discard(self)
            if self._problem is not None:
                raise self._problem
        finally:
            if is_first:
                self._is_closing = False

    def stop(self) -> bool:
        """Stop the loop and end the thread without closing anything, at the exit of a program.

        Returns False if the loop is still busy after STOP_S.
        """
        with self._lock:
            if not self._is_stopped and (self._is_stopping or self._thread.is_alive()):
                self._is_stopping = True
                with contextlib.suppress(RuntimeError):  # a close has ended the loop
                    self.loop.call_soon_threadsafe(self._leave)
                self._is_stopped = self._wait_for_thread(STOP_S)
                for task in asyncio.all_tasks(self.loop):  # they end with the program, as before
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
            return self._is_stopped

    # -- in the loop's thread

    def _serve(self) -> None:
        if not self._serves.acquire(blocking=False):
            return  # the start was interrupted
        try:
            self.loop = new_event_loop()
            self._has_opened = True
        except BaseException as problem:  # raised by the start
            self._problem = problem
            return
        finally:
            self._opened.release()
        self._is_leaving = self._is_abandoned
        try:
            while not self._is_leaving:
                # A task raises these here, too, and its caller gets them.
                with contextlib.suppress(KeyboardInterrupt, SystemExit):
                    self.loop.run_forever()
                    self._is_leaving = True
        finally:
            try:
                if self._is_over or self._is_abandoned:
                    self.loop.close()  # here, because an interrupted close could not be repeated
            except BaseException as problem:  # raised by the close
                self._problem = problem
            finally:
                self._has_left = True
                for each in self._waiters:
                    each.release()

    def _end(self) -> None:
        if self._ending is None:  # a former close may have been interrupted
            self._ending = self.loop.create_task(self._cancel_all())

    async def _cancel_all(self) -> None:
        try:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self.loop.shutdown_default_executor()
        finally:
            try:
                self.at_end()
                await asyncio.sleep(0)  # let the transports report that they are closed
            finally:
                self._is_over = True
                self._leave()

    def _leave(self) -> None:
        """Stop the loop once. A second stop of a uvloop would stop a later run of the loop."""
        if not self._is_leaving:
            self._is_leaving = True
            self.loop.stop()

    # -- in other threads

    def _wait_for_thread(self, timeout_s: float) -> bool:
        """Wait until the thread has left the loop, for ever if `timeout_s` is -1.

        Thread.join would take the thread for ended after a signal handler has raised in it.
        """
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        return self._has_left or waiter.acquire(timeout=timeout_s)

    def refuse_own_thread(self) -> None:
        """Raise RuntimeError in the loop's own thread, which would wait for itself."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("a callback may not wait for its own client")


class BlockingClient(Generic[C]):
    """The base class of synchronous clients. Each runs an asynchronous client on an event loop."""

    def __init__(self, client: C, name: str) -> None:
        """Start the loop. A subclass first sets its attributes, because this may be interrupted."""
        self._client = client
        self._closing, self._is_closing = threading.RLock(), False
        self._thread = LoopThread(name, starts=False)
        # a close that was interrupted has perhaps not begun
        self._thread.at_end = client._drop  # pyright: ignore[reportPrivateUsage]
        try:
            self._thread.start()
            self._started()
        except BaseException:  # of a signal handler; the application has no object to close
            self._thread.close()
            raise

    def _started(self) -> None:
        """Do the last part of the constructor, on which the loop is already running.

        Subclasses override this.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            with contextlib.suppress(KafkaError):  # the first error counts
                self.close()

    def run(self, work: Callable[[C], Awaitable[T]]) -> T:
        """Run `work(client)` on the loop, and return its result."""

        async def call() -> T:
            return await work(self._client)

        return self._thread.run(call())

    def close(self) -> None:
        """Close the client and its loop.

        A call in another thread returns only when the client is closed. A repeated call has no
        effect.
        """
        self._thread.refuse_own_thread()
        if self._thread.is_forked:
            return  # the parent closes it
        with self._closing:
            if self._is_closing:
                return  # by a signal handler in the middle of this
            self._is_closing = True
            try:
                if self._thread.is_ending:  # a former close was perhaps interrupted
                    self._thread.close()
                else:
                    self._close()
            finally:
                self._is_closing = False

    def _close(self) -> None:
        try:
            self.run(lambda client: client.close())
        finally:
            self._thread.close()


def waiting(
    method: Callable[Concatenate[C, P], Awaitable[T]],
) -> Callable[Concatenate[BlockingClient[C], P], T]:
    """Return the synchronous form of a coroutine method, for a blocking client."""

    @wraps(method)
    def call(blocking: BlockingClient[C], /, *arguments: P.args, **keywords: P.kwargs) -> T:
        return blocking.run(lambda client: method(client, *arguments, **keywords))

    return call


def on_loop(
    method: Callable[Concatenate[C, P], T],
) -> Callable[Concatenate[BlockingClient[C], P], T]:
    """Return the synchronous form of a plain method that must run on the loop's thread."""

    @wraps(method)
    async def called(client: C, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        return method(client, *arguments, **keywords)

    return waiting(called)
