"""A check-back inside a service, beside its writers, as a task or a thread.

    async with CheckBackTask("127.0.0.1:9092", DatabaseResolver(connect)):
        ...                                       # serve

    with BlockingCheckBack("127.0.0.1:9092", DatabaseResolver(connect)):
        ...

The start asks the resolver and the cluster once, and raises if a setting is wrong. Each process of
a service may have a check-back. `connect` for a `CheckBackTask` should open an asynchronous
connection, since a synchronous one blocks the event loop. `BlockingCheckBack` opens, uses and
closes its connection in a thread of its own.
"""

import asyncio
import logging
from typing import Any, Self

from ..failures import ClientClosed
from ..loop_thread import BlockingClient
from ..view_source import Source, view_of
from .check_back_service import EVERY_MS, OLDER_THAN_MS, CheckBack
from .resolvers import Resolver

logger = logging.getLogger(__name__)
CLOSED = "the check-back is closed"


class CheckBackTask:
    """A check-back in a task of the event loop."""

    def __init__(
        self,
        source: Source,
        resolver: Resolver,
        /,
        *,
        older_than_ms: int = OLDER_THAN_MS,
        every_ms: int = EVERY_MS,
        writer: str | None = None,
    ) -> None:
        """Create a check-back, which `start` starts. Closing it also closes the resolver."""
        self._view, self._resolver, self._every_ms = view_of(source), resolver, every_ms
        self._owns_view = self._view is not source
        self._check_back = CheckBack(
            self._view, resolver, older_than_ms=older_than_ms, writer=writer
        )
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()  # a failed start closes the resolver that all starts use
        self._is_closed = False

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Check the resolver and the cluster as `CheckBack.check` does, then start the task.

        A start does nothing while the task runs. It may be repeated after a failed start, or after
        the task has ended. Raises the errors of `CheckBack.check`, and ClientClosed if the object
        was closed before or during the start.
        """
        async with self._starting:
            self._refuse_closed()
            if self._task is not None and not self._task.done():
                return
            try:
                doubt = await self._check_back.check()
                self._refuse_closed()
            except BaseException:
                await self._resolver.close()
                raise
            if doubt:
                logger.warning("check-back: its resolver warns: %s", doubt)
            self._task = asyncio.create_task(self._check_back.run(every_ms=self._every_ms))
            self._task.add_done_callback(self._tell_of_end)

    def _tell_of_end(self, task: asyncio.Task[None]) -> None:
        """Log that the task has ended, because consumers may wait for ever without a check-back."""
        if self._task is task:  # not by close
            reason = "it was cancelled" if task.cancelled() else repr(task.exception())
            logger.error(
                "the check-back has stopped, so abandoned transactions stay open: %s", reason
            )

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise ClientClosed(CLOSED)

    async def close(self) -> None:
        """Cancel the task, and close the resolver."""
        self._is_closed = True
        task, self._task = self._task, None
        try:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        finally:
            await self._resolver.close()
            if self._owns_view:
                await self._view.close()

    def _drop(self) -> None:
        """Close the connections immediately, unless the caller has given the view."""
        if self._owns_view:
            self._view.drop()


class BlockingCheckBack(BlockingClient[CheckBackTask]):
    """A check-back in a thread. The arguments are the same as for `CheckBackTask`."""

    def __init__(self, source: Source, resolver: Resolver, /, **options: Any) -> None:
        super().__init__(CheckBackTask(source, resolver, **options), "oncelog-check-back")

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def start(self) -> None:
        """Start as `CheckBackTask.start` does.

        After a failed start the thread waits for another start, or for `close`.
        """
        self.run(CheckBackTask.start)
