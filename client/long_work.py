"""Work that continues over several calls, each with its own deadline."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from .retries import now_ms


class LongWork:
    """Runs one coroutine at a time. Several calls may wait for it, one after the other."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None

    @property
    def is_idle(self) -> bool:
        """Whether no work is running, so that `begin` starts new work."""
        return self._task is None or self._task.done()

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start `work` unless the earlier work still runs.

        An error of the earlier work is dropped.
        """
        if self.is_idle:
            self._task = asyncio.create_task(work())

    async def until(self, deadline_ms: int, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Continue the running work, or begin `work`.

        Return False if the work has not ended at the deadline. Raises the error of the work.
        """
        if self._task is None:
            self._task = asyncio.create_task(work())
        task = self._task
        await asyncio.wait([task], timeout=max(0, deadline_ms - now_ms()) / 1000)
        if not task.done():
            return False
        if self._task is task:
            self._task = None
        if not task.cancelled():
            task.result()
        return True

    async def ended(self) -> None:
        """Wait for the end of work that an interrupted call has left running. Ignore its error."""
        task = self._task
        if task is not None:
            await asyncio.wait([task])
            if self._task is task:
                self._task = None
            if not task.cancelled():
                task.exception()

    def drop(self) -> None:
        """Cancel the work without waiting for its end."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    async def stop(self) -> None:
        """Cancel the work, and return when it has ended."""
        task = self._task
        self.drop()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)
