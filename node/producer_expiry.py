"""Forgets producers that have been silent for producer.id.expiration.ms (KIP-360, KIP-854).

One with an open transaction is never forgotten. What is known of a producer that comes back is
nothing: its next batch is taken with any sequence, but for a transactional one of a client with
KIP-890.
"""

import asyncio
import logging
from collections.abc import Sequence

from ..replication.background_task import background_task
from ..replication.sliced_work import SlicedWork
from .connection_fence import ConnectionFence
from .replica_manager import ReplicaManager

logger = logging.getLogger(__name__)


class ProducerExpiry:
    """The timer of one broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        fences: Sequence[ConnectionFence],
        *,
        work: SlicedWork,
        expiration_ms: int,
        interval_ms: int,
    ) -> None:
        self._replicas = replicas
        self._work = work
        self._fences = tuple(fences)
        self._expiration_ms = expiration_ms
        self._interval_ms = interval_ms
        self._task = background_task("producer expiry", self._run())

    async def stop(self) -> None:
        """End the work."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def expire(self) -> int:
        """Look once; returns how many were forgotten, over all partitions."""
        clock = self._replicas.clock
        count = 0
        for partition in self._replicas:
            log = partition.log
            if not log.is_failed and len(log.producer_state):
                forgetting = log.producer_state.expiring(clock.wall_ms(), self._expiration_ms)
                count += await self._work.run("producer expiry", forgetting)
        for fence in self._fences:
            forgetting = fence.expiring(clock.monotonic_ms(), self._expiration_ms)
            await self._work.run("producer expiry", forgetting)
        return count

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            try:
                if count := await self.expire():
                    logger.info("%d silent producers are forgotten", count)
            except Exception:  # the next look is as good
                logger.exception("forgetting silent producers")
