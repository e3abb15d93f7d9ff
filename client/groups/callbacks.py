"""Calls rebalance callbacks of the application, each once and to its end.

An exception of a callback does not end a rebalance, as in Java's classic consumer. The first
exception is kept, and raised by the poll or close in which the rebalance runs. This also holds for
SystemExit, which would end the event loop if a task raised it.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from ...wire.identifiers import TopicPartition


class Callbacks:
    """The calls of one member's rebalance callbacks."""

    def __init__(self) -> None:
        self._problem: BaseException | None = None
        self._calling: asyncio.Future[Any] | None = None  # a callback that is awaited

    async def call(
        self, callback: Callable[[list[TopicPartition]], Any] | None, places: set[TopicPartition]
    ) -> None:
        """Call a rebalance callback of the application with these partitions.

        An awaited callback runs to its end even if a close cancels the caller.
        """
        if callback is None:
            return
        try:
            waits = callback(sorted(places))
        except BaseException as problem:
            self._keep(problem)
            return
        if inspect.isawaitable(waits):
            work = waits if asyncio.isfuture(waits) else self._awaited(waits)
            calling = self._calling = asyncio.ensure_future(work)
            calling.add_done_callback(self._called)
            await _until_done(calling)

    async def _awaited(self, waits: Awaitable[Any]) -> None:
        try:
            await waits
        except asyncio.CancelledError:
            raise
        except BaseException as problem:
            self._keep(problem)

    def _called(self, calling: asyncio.Future[Any]) -> None:
        self._calling = None
        problem = asyncio.CancelledError() if calling.cancelled() else calling.exception()
        if problem is not None:
            self._keep(problem)

    def _keep(self, problem: BaseException) -> None:
        if isinstance(problem, asyncio.CancelledError):
            problem = RuntimeError("a callback of the rebalance was cancelled")
        self._problem = self._problem or problem

    def raise_problem(self) -> None:
        """Raise the first exception that a callback has raised.

        Each exception is raised only once.
        """
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem

    def refuse_one(self) -> None:
        """Raise RuntimeError if the caller is a callback, since it would wait for its own end."""
        if self._calling is not None and self._calling is asyncio.current_task():
            raise RuntimeError("a callback may not wait for its own client")


async def _until_done(calling: asyncio.Future[Any]) -> None:
    """Wait until the call is done, then raise the cancellation, if the caller was cancelled.

    A second cancellation of the caller cancels the call.
    """
    try:
        await asyncio.wait([calling])
    except asyncio.CancelledError:
        try:
            await asyncio.wait([calling])
        except asyncio.CancelledError:
            calling.cancel()
        raise
