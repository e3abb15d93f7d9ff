"""Work of a writer that runs to its end even if the waiting task is cancelled.

A cancelled end of a block would leave its transaction open in Kafka, or its locks in the database.
Therefore the work runs in a task of its own. The caller is cancelled immediately. The next block
and the close of the writer wait for the unfinished work.
"""

import asyncio
import logging
from collections.abc import Callable

from .flow import Flow, drive_async

logger = logging.getLogger(__name__)
LAST_S = 1.0  # for abandoned work to roll back
CUTS = 2


class ShieldedWork:
    """The work of one writer that continues if its caller is cancelled.

    Only one flow runs at a time.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[None] | None = None  # the last one
        self._left: asyncio.Task[None] | None = None

    async def run(
        self,
        flow: Flow[None],
        undo: Callable[[BaseException], Flow[None]] | None = None,
    ) -> None:
        """Run a flow to its end, even if the caller is cancelled.

        undo: returns a second flow, which runs after the first if the caller was cancelled.
        """
        cut: BaseException | None = None

        async def work() -> None:
            await drive_async(flow)
            if cut is not None and undo is not None:
                await drive_async(undo(cut))

        task = self._task = asyncio.create_task(work())
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as problem:
            cut = problem
            if not task.done():
                self._left = task
                task.add_done_callback(self._log)
            elif undo is not None and not task.cancelled() and task.exception() is None:
                await self.run(undo(cut))  # it had begun, and its caller is gone
            raise
        task.result()

    async def ended(self) -> None:
        """Wait for the work that a cancelled caller has left running. Its errors are not raised."""
        while (task := self._left) is not None:
            await asyncio.wait([task])
            if self._left is task:
                self._left = None

    async def stop(self, timeout_s: float) -> bool:
        """Wait for running work. After the timeout cancel it and return False."""
        task = self._task
        if task is None or task.done():
            return True
        is_done = False
        try:
            is_done = bool((await asyncio.wait([task], timeout=timeout_s))[0])
        finally:
            for _ in range(CUTS):  # the first one makes it take a shorter way to its end
                if not task.done():
                    task.cancel()
                    await asyncio.wait([task], timeout=LAST_S)
        if not is_done:
            logger.warning(
                "%s: the work did not end within %g s, and the next start of this writer "
                "will finish it",
                self._name,
                timeout_s,
            )
        return is_done

    def _log(self, task: asyncio.Task[None]) -> None:
        problem = None if task.cancelled() else task.exception()
        if problem is not None:
            logger.warning(
                "%s: a block failed after its caller was cancelled: %s", self._name, problem
            )
