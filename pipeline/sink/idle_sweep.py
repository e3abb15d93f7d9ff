"""End what attempts leave open that come too late, while no batch runs.

An attempt that Spark did not keep may write when its batch is long committed: its executor stood
still, or its answers were slow. What it leaves open holds up readers of its partitions, and the
next batch may be hours away, or never come. So open children are looked for every SWEEP_S seconds
between batches, for LINGER_S after the query was let go of, and once more when the program ends.

Never while a batch runs: its attempts' children are open, and nobody has decided about them yet.
"""

import asyncio
import contextlib
import logging

from .child_requests import ChildRequests
from .names import Leftovers, shown

log = logging.getLogger("oncelog.sink")

SWEEP_S = 10.0
LINGER_S = 60.0
LAST_SWEEP_S = 3.0  # that one may take at the end of a program
LAST_SWEEPS_S = 9.0  # that all of them together may


class IdleSweep:
    """Sweeps from its making until `stop`; on the loop of its cluster."""

    def __init__(self, children: ChildRequests, leftovers: Leftovers) -> None:
        self._children, self._leftovers = children, leftovers
        self._swept: list[str] = []
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> list[str]:
        """The ids that were aborted, or may be yet: a request on its way is not called back."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        return self._swept

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.once()

    async def once(self) -> None:
        """One sweep; what a cluster refuses now is tried again with the next. Raises nothing."""
        sink = self._leftovers.sink_id
        try:
            names = self._leftovers.among((await self._children.list_open()).names)
            if names:
                self._swept += names
                log.warning("sink %s: attempts came too late; ended: %s", sink, shown(names))
                await self._children.abort(names)
        except Exception as problem:  # whatever it is, the query's next batch is not to die of it
            log.info("sink %s: what attempts left open is not known now: %s", sink, problem)
