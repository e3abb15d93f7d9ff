"""A synchronous face over the asyncio client: one event loop in one thread, made when needed.

Works inside programs that run an event loop of their own (there a plain `asyncio.run` would not).
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ..client.admin import Admin
from ..client.cluster_view import ClusterView

T = TypeVar("T")


class BlockingAdmin:
    """Runs coroutines that need an `Admin`; close it when done."""

    def __init__(self, bootstrap: str, *, timeout_ms: int = 15_000) -> None:
        self._bootstrap, self._timeout_ms = bootstrap, timeout_ms
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._admin: Admin | None = None

    def run(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """Run `work(admin)` to its end and return what it returns."""

        async def call() -> T:
            if self._admin is None:
                view = ClusterView(self._bootstrap, timeout_ms=min(2_000, self._timeout_ms))
                self._admin = Admin(view, timeout_ms=self._timeout_ms)
            return await work(self._admin)

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def close(self) -> None:
        """Close connections and the loop."""
        if self._loop.is_closed():
            return

        async def finish() -> None:
            if self._admin is not None:
                await self._admin.view.close()

        asyncio.run_coroutine_threadsafe(finish(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> "BlockingAdmin":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def run_apart(work: Awaitable[None]) -> None:
    """Run a coroutine to its end in a thread of its own, so that a caller's event loop is no bar.

    Of several failures that came together, one comes out, plain.
    """
    problems: list[BaseException] = []

    async def call() -> None:
        await work

    def run() -> None:
        try:
            asyncio.run(call())
        except BaseException as problem:  # handed to the caller's thread
            problems.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    if problems:
        first = problems[0]
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first
