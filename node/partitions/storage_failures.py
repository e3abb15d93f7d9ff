"""Tells the controller which logs of this broker have failed, until it knows.

The broker has stopped serving them already (KAFKA_STORAGE_ERROR). Only the replicated metadata
can make another replica lead, so the report is repeated until it is answered.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ...coordinator.metadata.commands import Command, FailReplicas
from ...coordinator.metadata.results import Result
from ...replication.background_task import background_task, end_tasks
from ...wire.errors import KafkaError
from .ports import FailedLogs

logger = logging.getLogger(__name__)
Propose = Callable[[Command], Awaitable[Result]]
GATHER_S = 0.02  # one bad disk breaks many logs at nearly the same time
RETRY_S = 0.2


class StorageFailures(FailedLogs):
    """The failed replicas of one broker that the controller does not know of yet."""

    def __init__(self, propose: Propose, *, node_id: int, broker_epoch: int) -> None:
        self._propose = propose
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._unreported: dict[tuple[bytes, int], None] = {}
        self._task: asyncio.Task[None] | None = None

    def report(self, topic_id: bytes, index: int) -> None:
        self._unreported[topic_id, index] = None
        if self._task is None or self._task.done():
            self._task = background_task("failed replicas", self._run())

    def withdraw(self, topic_id: bytes, index: int) -> None:
        if self._unreported.pop((topic_id, index), self) is self:
            return
        if self._task is not None:  # maybe in the middle of asking
            self._task.cancel()
            self._task = background_task("failed replicas", self._run())

    async def stop(self) -> None:
        if self._task is not None:
            await end_tasks(self._task)

    async def _run(self) -> None:
        await asyncio.sleep(GATHER_S)
        while self._unreported:
            partitions = tuple(self._unreported)
            try:
                result = await self._propose(
                    FailReplicas(self._node_id, self._broker_epoch, partitions)
                )
            except KafkaError as error:
                logger.warning("failed replicas are not reported yet: %s", error)
                await asyncio.sleep(RETRY_S)
                continue
            if result.error:
                logger.error("failed replicas: %s", result.message)
            for key in partitions:
                self._unreported.pop(key, None)
