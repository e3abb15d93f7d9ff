"""An event loop in a thread of its own, for programs that have none.

Made by each synchronous client for itself, after any fork of the program, and ended with it. It is
a uvloop where that is installed.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from ..wire.errors import KafkaError
from .failures import ClientClosed


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


class LoopThread:
    """Runs coroutines for callers in other threads."""

    def __init__(self, name: str) -> None:
        self.loop = new_event_loop()
        self._lock, self._is_ending = threading.RLock(), False  # a finalizer may run within
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run to its end and return what it returns; TimeoutError (and cancelled) after a time.

        ClientClosed when the loop has ended, or ends meanwhile. RuntimeError from the loop's own
        thread, where waiting would wait for itself.
        """
        future: Future[T]
        try:
            self.refuse_own_thread()
            with self._lock:  # what comes behind `close` would never be run
                if self._is_ending:
                    raise ClientClosed("the client is closed")
                future = asyncio.run_coroutine_threadsafe(work, self.loop)
        except (RuntimeError, ClientClosed):
            work.close()
            raise
        try:
            return future.result(timeout_s)
        except CancelledError:
            if self._is_ending:
                raise ClientClosed("the client was closed meanwhile") from None
            raise
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and the thread; what still runs there is cancelled. The first call does."""
        self.refuse_own_thread()
        with self._lock:
            is_first, self._is_ending = not self._is_ending, True
        if not is_first:
            return

        async def cancel_all() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self.loop.shutdown_default_executor()

        asyncio.run_coroutine_threadsafe(cancel_all(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

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
        with self._closing:
            if not self._is_closing:  # by a handler of signals, perhaps, in the middle of this
                self._is_closing = True
                self._close()

    def _close(self) -> None:
        try:
            self._thread.run(self._client.close())
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
