"""An event loop in a thread of its own, for programs that have none.

Made by each synchronous client for itself, after any fork of the program, and ended with it. It is
a uvloop where that is installed.

One that nobody has closed is stopped when the program ends, before the interpreter is taken down: a
loop of uvloop that wakes after that asks for a lock that is no more, and the process ends by
SIGSEGV. What handlers of the end ask for later still (a producer's close) runs in their own thread.
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


P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=Closing)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The fastest loop that there is here."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


STOP_S = 5.0  # that the end of a program waits for a loop in the middle of something
_unclosed: "weakref.WeakSet[LoopThread]" = weakref.WeakSet()


@atexit.register
def _stop_at_exit() -> None:
    for each in list(_unclosed):
        each.stop()


class _Call(Generic[T]):
    """A coroutine that the loop runs for a thread that waits.

    An exception of a signal handler may leave the waiting anywhere. In a condition (of threading,
    of a concurrent future) it can leave a lock behind that the loop then waits for, for ever; a
    bare lock is taken in one piece.
    """

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._is_running = threading.Lock()
        self._is_running.acquire()

    def begin(self) -> None:
        """Run it; on the loop."""
        self._task = asyncio.ensure_future(self._work)
        self._task.add_done_callback(lambda _: self._is_running.release())

    def cancel(self) -> None:
        """Give it up; on the loop, after `begin`."""
        if self._task is not None:
            self._task.cancel()
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    def result(self, timeout_s: float | None) -> T:
        """Wait for it. Raises what it has raised, CancelledError, or TimeoutError."""
        if not self._is_running.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s)):
            raise TimeoutError
        assert self._task is not None
        if self._task.cancelled():
            raise CancelledError
        return self._task.result()


class LoopThread:
    """Runs coroutines for callers in other threads."""

    def __init__(self, name: str) -> None:
        self.loop = new_event_loop()
        self._lock, self._is_ending = threading.RLock(), False  # a finalizer may run within
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self.is_forked = False  # this is a child of the process that has the thread
        self._is_stopped = False  # the loop is at rest, and may be run by whoever needs it
        self._thread.start()
        _unclosed.add(self)
        tell_of_forks(self)

    def forked(self) -> None:
        """The thread is the parent's; called in the child."""
        self.is_forked = True
        _unclosed.discard(self)

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run to its end and return what it returns; TimeoutError (and cancelled) after a time.

        ClientClosed when the loop has ended, or ends meanwhile, or is another process's.
        RuntimeError from the loop's own thread, where waiting would wait for itself.
        """
        call: _Call[T]
        try:
            self.refuse_own_thread()
            if self.is_forked:  # the lock may be held, by a thread of the parent
                raise ClientClosed(FORKED)
            with self._lock:  # what comes behind `close` would never be run
                if self._is_ending:
                    raise ClientClosed("the client is closed")
                if self._is_stopped:
                    return self.loop.run_until_complete(asyncio.wait_for(work, timeout_s))
                call = _Call(work)
                self.loop.call_soon_threadsafe(call.begin)
        except (RuntimeError, ClientClosed):
            work.close()
            raise
        try:
            return call.result(timeout_s)
        except CancelledError:
            if self._is_ending:
                raise ClientClosed("the client was closed meanwhile") from None
            raise
        except BaseException:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(call.cancel)
            raise

    def close(self) -> None:
        """End the loop and the thread; what still runs there is cancelled. The first call does."""
        self.refuse_own_thread()
        if self.is_forked:
            return
        with self._lock:
            is_first, self._is_ending = not self._is_ending, True
        if not is_first:
            return
        _unclosed.discard(self)

        async def cancel_all() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self.loop.shutdown_default_executor()

        if self._is_stopped:
            self.loop.run_until_complete(cancel_all())
        else:
            asyncio.run_coroutine_threadsafe(cancel_all(), self.loop).result()
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
        self.loop.close()

    def stop(self) -> None:
        """Let the loop rest, and end the thread; nothing is closed. For the end of a program."""
        with self._lock:
            if self._is_ending or self._is_stopped or not self._thread.is_alive():
                return
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(STOP_S)
            self._is_stopped = not self._thread.is_alive()
            for task in asyncio.all_tasks(self.loop):  # which end with the program, as they did
                task._log_destroy_pending = False  # type: ignore[attr-defined]

    def refuse_own_thread(self) -> None:
        """Raises RuntimeError where waiting would wait for itself."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("a callback may not wait for its own client")


class BlockingClient(Generic[C]):
    """A client of coroutines for a program without an event loop."""

    def __init__(self, client: C, name: str) -> None:
        self._client = client
        self._thread = LoopThread(name)
        self._closing, self._is_closing = threading.RLock(), False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            with contextlib.suppress(KafkaError):  # what came first counts
                self.close()

    def run(self, work: Callable[[C], Awaitable[T]]) -> T:
        """Run `work(client)` to its end."""

        async def call() -> T:
            return await work(self._client)

        return self._thread.run(call())

    def close(self) -> None:
        """Close the client and its loop. Other threads that do wait for it, repeated calls not."""
        self._thread.refuse_own_thread()
        if self._thread.is_forked:
            return  # it is the parent's to close
        with self._closing:
            if not self._is_closing:  # by a handler of signals, perhaps, in the middle of this
                self._is_closing = True
                self._close()

    def _close(self) -> None:
        try:
            self.run(lambda client: client.close())
        finally:
            self._thread.close()


def waiting(
    method: Callable[Concatenate[C, P], Awaitable[T]],
) -> Callable[Concatenate[BlockingClient[C], P], T]:
    """The method of a blocking client that runs one of its client's to its end."""

    @wraps(method)
    def call(blocking: BlockingClient[C], /, *arguments: P.args, **keywords: P.kwargs) -> T:
        return blocking.run(lambda client: method(client, *arguments, **keywords))

    return call


def on_loop(
    method: Callable[Concatenate[C, P], T],
) -> Callable[Concatenate[BlockingClient[C], P], T]:
    """The same of a method that is no coroutine, and belongs to the loop."""

    @wraps(method)
    async def called(client: C, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        return method(client, *arguments, **keywords)

    return waiting(called)
