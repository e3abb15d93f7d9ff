"""The sweep, which aborts open transactions of late task attempts while no batch runs.

An attempt that Spark did not keep may write long after its batch is committed, because its executor
was paused or its answers were slow. Its open transaction blocks readers of its partitions, and the
next batch may be hours away, or never come. Therefore open transactions are swept every SWEEP_S
seconds between batches, for LINGER_S after the query has ended, and once more when the program
ends.

No sweep runs beside a batch, because the transactions of its attempts are open and not decided yet.
"""

import asyncio
import contextlib
import logging

from .child_requests import ChildRequests
from .names import Leftovers, shown

log = logging.getLogger("oncelog.sink")

SWEEP_S = 10.0
LINGER_S = 60.0
LAST_SWEEP_S = 3.0  # the longest of one at the end of a program
LAST_SWEEPS_S = 9.0  # the longest of all of them together


class IdleSweep:
    """A task on the cluster's event loop that aborts leftover transactions until `stop`."""

    def __init__(self, children: ChildRequests, leftovers: Leftovers) -> None:
        self._children, self._leftovers = children, leftovers
        self._swept: list[str] = []
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> list[str]:
        """Stop the task. Return the ids that it has aborted, or that a running request may still
        abort.
        """
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        return self._swept

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.once()

    async def once(self) -> None:
        """Abort the leftover transactions once. An error is logged, and the next sweep retries."""
        sink = self._leftovers.sink_id
        try:
            names = self._leftovers.among((await self._children.list_open()).names)
            if names:
                self._swept += names
                log.warning(
                    "sink %s: late task attempts left transactions open, which are aborted: %s",
                    sink,
                    shown(names),
                )
                await self._children.abort(names)
        except Exception as problem:  # no error may fail the query's next batch
            log.info(
                "sink %s: the open transactions of task attempts cannot be listed or "
                "aborted now: %s",
                sink,
                problem,
            )
