"""The expiry of producers that were silent for producer.id.expiration.ms (KIP-360, KIP-854).

Above oncelog.producer.ids.max the producers that were silent for longest expire earlier. A producer
with an open transaction never expires. After the expiry the next batch of a producer is accepted
with any sequence, unless it is a transactional batch of a client with KIP-890.
"""

import asyncio
import logging
from collections.abc import Sequence

from ...runtime.background_task import background_task, end_tasks
from ...storage.producers.state import RETRIES_END_MS
from ..partitions.replica_manager import ReplicaManager
from .connection_fence import ProducerConnectionFence

ROOM_INTERVAL_MS = 10_000
logger = logging.getLogger(__name__)


class ProducerExpiry:
    """The periodic expiry of silent producers in all partitions of one broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        fences: Sequence[ProducerConnectionFence],
        *,
        expiration_ms: int,
        interval_ms: int,
        producers_max: int,
    ) -> None:
        self._replicas = replicas
        self._work = replicas.work
        self._fences = tuple(fences)
        self._expiration_ms = expiration_ms
        self._interval_ms = interval_ms
        self._producers_max = producers_max  # the limit over all partitions
        self._task = background_task("producer expiry", self._run())

    async def stop(self) -> None:
        await end_tasks(self._task)

    async def expire(self) -> int:
        """Expire silent producers once, and return their number over all partitions."""
        clock = self._replicas.clock
        count = await self._expire(self._expiration_ms)
        for fence in self._fences:
            forgetting = fence.expiring(clock.monotonic_ms(), self._expiration_ms)
            await self._work.run("producer expiry", forgetting)
        return count

    async def make_room(self) -> int:
        """Expire more producers when there are too many, and return their number.

        The limit of silence is halved until enough producers have expired, down to RETRIES_END_MS.
        """
        silent_ms, count = self._expiration_ms, 0
        while self.known_count > self._producers_max and silent_ms > RETRIES_END_MS:
            silent_ms = max(silent_ms // 2, RETRIES_END_MS)
            count += await self._expire(silent_ms)
        return count

    @property
    def known_count(self) -> int:
        """The number of producers, counted once for each partition that knows them."""
        return sum(len(partition.log.producer_state) for partition in self._replicas)

    async def _expire(self, silent_ms: int) -> int:
        count, clock = 0, self._replicas.clock
        for partition in self._replicas:
            log = partition.log
            if not log.is_failed and len(log.producer_state):
                forgetting = log.producer_state.expiring(
                    clock.wall_ms(), silent_ms, clock.advanced_since_ms
                )
                try:
                    count += await self._work.run("producer expiry", forgetting)
                except Exception:  # an error of one partition must not affect the others
                    logger.exception("%r: silent producers could not be expired", partition)
        return count

    async def _run(self) -> None:
        since_ms = 0
        while True:
            sleep_ms = min(self._interval_ms, ROOM_INTERVAL_MS)
            await asyncio.sleep(sleep_ms / 1000)
            since_ms += sleep_ms
            try:
                if since_ms >= self._interval_ms:
                    since_ms = 0
                    if count := await self.expire():
                        logger.info("%d silent producers expired", count)
                if count := await self.make_room():
                    logger.warning(
                        "%d producers expired early, because there were more than "
                        "oncelog.producer.ids.max=%d",
                        count,
                        self._producers_max,
                    )
            except Exception:  # the next run retries
                logger.exception("silent producers could not be expired")
