"""A broker that leads partitions of __consumer_offsets, by default the only one, and nothing else.

Node 2 may be its follower, and the test sets the follower's position. Times are real but short.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from oncelog.coordinator.metadata.cluster_model import PartitionRegistration
from oncelog.coordinator.metadata.commands import CreateTopics
from oncelog.node.groups.coordinator import OFFSETS_TOPIC, GroupCoordinator
from oncelog.node.groups.shard import GroupShard, ShardState
from oncelog.node.handlers.metadata.auto_creation import new_topic
from oncelog.wire.record_batch import decode_header

from ..awaiting import turns_until
from ..log_batches import marker
from .hosted_logs import open_hosted
from .leading_broker import LeadingBroker

SETTINGS = {
    "offsets_topic_num_partitions": "1",
    "group_min_session_timeout_ms": "50",
    "offsets_commit_timeout_ms": "20000",
}


class CoordinatingBroker(LeadingBroker):
    """A broker that coordinates groups. `lead` makes it the leader of a partition."""

    topic = OFFSETS_TOPIC

    def __init__(self, directory: Path, *, topic: bool = True, **settings: str) -> None:
        super().__init__(directory, partitions=0, settings=SETTINGS | settings)
        self.directory = directory
        self.groups = self.services.groups = GroupCoordinator(
            config=self.services.config,
            state=self.fake.state,
            replicas=self.replicas,
            clock=self.clock,
            events=self.services.events,
        )
        self.groups.start()
        if topic:
            command = CreateTopics((new_topic(self.services.config, OFFSETS_TOPIC),))
            assert not self.fake.controller.apply(command).items[0].error

    def lead(
        self,
        *,
        replicas: tuple[int, ...] = (1,),
        isr: tuple[int, ...] | None = None,
        min_insync_replicas: int = 1,
        epoch: int = 1,
        index: int = 0,
    ) -> None:
        """Open the log of a partition of __consumer_offsets, and lead the partition."""
        self.min_insync_replicas = min_insync_replicas
        now_ms = self.clock.wall_ms()
        hosted = open_hosted(self.directory, index, topic=OFFSETS_TOPIC, now_ms=now_ms)
        self.replicas.add(hosted)
        self.make_leader(hosted, PartitionRegistration(replicas, isr or replicas, 1, epoch))
        assert hosted.leader is not None
        raised = hosted.leader.tick(self.clock.monotonic_ms())
        self.replicas.raise_high_watermark(hosted, raised)
        self.replicas.role_changed(hosted)

    async def serve(self, **role: Any) -> None:
        """Lead partition 0, and wait until its groups and offsets are loaded."""
        self.lead(**role)
        await turns_until(lambda: self.groups.shards[0].state is ShardState.SERVING)

    def commit_transaction(self) -> None:
        """Append the commit marker of producer 7."""
        view = memoryview(bytearray(marker(7, coordinator_epoch=1)))
        self.replicas.append(self.partition(), view, decode_header(view), -1)

    @property
    def shard(self) -> GroupShard:
        return self.groups.shard_for("any")


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[CoordinatingBroker]:
    """Yield a coordinator without followers."""
    broker = CoordinatingBroker(directory)
    await broker.serve()
    yield broker
    broker.groups.stop()
