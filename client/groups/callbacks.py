"""Calls the callbacks of a program that tell it of a rebalance: each once, to its end.

What a callback raises ends no rebalance, as in Java's classic consumer: the first error is kept,
and comes out of the poll, or of the close, that the rebalance goes on in.
"""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from ...wire.identifiers import TopicPartition


class Callbacks:
    """See the top of the file; of one member."""

    def __init__(self) -> None:
        self._problem: Exception | None = None
        self._calling: asyncio.Future[Any] | None = None  # one that waits

    async def call(
        self, callback: Callable[[list[TopicPartition]], Any] | None, places: set[TopicPartition]
    ) -> None:
        """Call it; to its end, too, where a close cancels what is under way."""
        if callback is None:
            return
        try:
            waits = callback(sorted(places))
        except Exception as problem:
            self._problem = self._problem or problem
            return
        if inspect.isawaitable(waits):
            calling = self._calling = asyncio.ensure_future(waits)
            calling.add_done_callback(self._called)
            await _until_done(calling)

    def _called(self, calling: asyncio.Future[Any]) -> None:
        self._calling = None
        cancelled = RuntimeError("a callback of the rebalance was cancelled")
        problem = cancelled if calling.cancelled() else calling.exception()
        if isinstance(problem, Exception):
            self._problem = self._problem or problem

    def raise_problem(self) -> None:
        """Raises what a callback has raised, once."""
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem

    def refuse_one(self) -> None:
        """Raises RuntimeError in a callback, for what would wait for the end of it."""
        if self._calling is not None and self._calling is asyncio.current_task():
            raise RuntimeError("a callback may not wait for its own client")


async def _until_done(calling: asyncio.Future[Any]) -> None:
    """Return or, cancelled meanwhile, raise when it is done; cancelled again, give it up."""
    try:
        await asyncio.wait([calling])
    except asyncio.CancelledError:
        try:
            await asyncio.wait([calling])
        except asyncio.CancelledError:
            calling.cancel()
        raise
