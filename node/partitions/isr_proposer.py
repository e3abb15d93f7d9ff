"""The proposals of ISR changes (shrink and expand), one command at a time.

A partition is checked when a follower has caught up and after each answer of the controller. Until
it is settled (`PartitionLeader.is_settled`), it is also checked on a slow timer, and when a broker
was registered or fenced. The timer also detects a follower that has stopped fetching. The other
checks are needed because a follower that has caught up may be refused at first, for example while
it is fenced, and reports its unchanged position only once. A settled partition is not checked until
an append or a metadata change.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from ...coordinator.metadata.commands import AlterPartition, Command, IsrProposal
from ...coordinator.metadata.results import Item, Result
from ...replication.leader import IsrChange, PartitionLeader
from ...runtime.background_task import background_task, end_tasks
from ...runtime.fault_point import FaultPoint, no_fault_point
from ...runtime.sliced_work import Steps
from ...wire.errors import ErrorCode, KafkaError
from .hosted_partition import HostedPartition
from .ports import InSyncReplicas
from .replica_manager import ReplicaManager

logger = logging.getLogger(__name__)
Propose = Callable[[Command], Awaitable[Result]]
RETRY_MS = 50
CHANGES_MAX = 500  # the limit for one command, far below the size limit of a Raft command
Pending = tuple[HostedPartition, PartitionLeader, IsrChange]


class IsrProposer(InSyncReplicas):
    """The ISR proposals for all partitions that this broker leads."""

    def __init__(
        self,
        replicas: ReplicaManager,
        propose: Propose,
        *,
        node_id: int,
        broker_epoch: int,
        tick_ms: int,
        fault_point: FaultPoint = no_fault_point,
    ) -> None:
        self._replicas = replicas
        self._propose = propose
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._tick_ms = tick_ms
        self._fault_point = fault_point
        self._waiting: dict[HostedPartition, None] = {}
        self._wake = asyncio.Event()
        self._was_refused = False
        self._tasks = [
            background_task("ISR changes", self._run()),
            background_task("ISR tick", self._tick()),
        ]
        replicas.in_sync = self

    def isr_may_change(self, partition: HostedPartition) -> None:
        self._waiting[partition] = None
        self._wake.set()

    async def stop(self) -> None:
        """Stop proposing ISR changes, and ignore the outcome of a proposal in flight."""
        await end_tasks(*self._tasks)

    def look_at_unsettled(self) -> None:
        if self._replicas.unsettled:
            self._waiting.update(self._replicas.unsettled)
            self._wake.set()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._tick_ms / 1000)
            self.look_at_unsettled()

    def _look_at(self, partitions: Iterable[HostedPartition]) -> Steps[list[Pending]]:
        """Raise the high watermarks that may rise, and return the ISR changes to propose."""
        pending = []
        for partition in partitions:
            leader, now_ms = partition.leader, self._replicas.clock.monotonic_ms()
            if leader is not None:
                self._replicas.raise_high_watermark(partition, leader.tick(now_ms))
                if change := leader.next_isr_change(now_ms):
                    pending.append((partition, leader, change))
            if leader is None or leader.is_settled:
                self._replicas.unsettled.pop(partition, None)
            else:
                self._replicas.unsettled[partition] = None
            yield
        return pending

    async def _run(self) -> None:
        again: list[Pending] = []
        while True:
            if not again:
                await self._wake.wait()
            self._wake.clear()
            waiting, self._waiting = self._waiting, {}
            pending = again + await self._replicas.work.run("ISR changes", self._look_at(waiting))
            again, self._was_refused = [], False
            for start in range(0, len(pending), CHANGES_MAX):
                again += await self._ask(pending[start : start + CHANGES_MAX])
            # A change of the metadata after a refusal leads to another check of the partition.
            # Without a pause the same proposal would be repeated as fast as it is refused.
            if again or self._was_refused:
                await asyncio.sleep(RETRY_MS / 1000)

    async def _ask(self, pending: list[Pending]) -> list[Pending]:
        """Propose ISR changes to the controller, and return those that must be proposed again."""
        changes = tuple(
            IsrProposal(
                partition.topic_id,
                partition.index,
                change.leader_epoch,
                change.partition_epoch,
                tuple((member.node_id, member.broker_epoch) for member in change.isr),
            )
            for partition, _, change in pending
        )
        self._fault_point("isr.before-change")
        try:
            result = await self._propose(AlterPartition(self._node_id, self._broker_epoch, changes))
        except KafkaError as error:
            logger.debug("the outcome of ISR changes is unknown: %s", error)
            return [entry for entry in pending if entry[0].leader is entry[1]]
        self._fault_point("isr.after-change")
        return await self._replicas.work.run("ISR changes", self._taking(pending, result))

    def _taking(self, pending: list[Pending], result: Result) -> Steps[list[Pending]]:
        """Apply the controller's results for ISR changes, and return the changes to propose again.

        A leadership may end between two steps, so each change is checked in its own step.
        """
        items = [Item(error=result.error)] * len(pending) if result.error else result.items
        again = []
        for entry, item in zip(pending, items, strict=True):
            partition, leader, change = entry
            if partition.leader is not leader:
                pass
            elif item.error == ErrorCode.NONE:
                now_ms = self._replicas.clock.monotonic_ms()
                raised = leader.isr_change_succeeded(change, item.isr, item.partition_epoch, now_ms)
                self._replicas.raise_high_watermark(partition, raised)
                partition.partition_epoch = max(partition.partition_epoch, item.partition_epoch)
                logger.debug("%r: the ISR is now %s", partition, list(item.isr))
                self.isr_may_change(partition)
            else:
                logger.info(
                    "%r: the controller refused an ISR change with error %d", partition, item.error
                )
                self._was_refused = True
                if leader.isr_change_failed(change, item.error) is not None:
                    again.append(entry)
            yield
        return again
