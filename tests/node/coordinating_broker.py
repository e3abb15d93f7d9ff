"""A broker that leads the one partition of __consumer_offsets, on a disk, and nothing else.

Node 2 follows and has what the test says it has. Time is real, and short.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from oncelog.coordinator.metadata.cluster_model import Partition
from oncelog.coordinator.metadata.commands import CreateTopics
from oncelog.node.clock import SystemClock
from oncelog.node.groups.coordinator import OFFSETS_TOPIC, GroupCoordinator
from oncelog.node.groups.shard import GroupShard
from oncelog.node.handlers.api_table import control_plane_apis
from oncelog.node.handlers.metadata.auto_creation import new_topic
from oncelog.node.listener.dispatch import Dispatcher, RequestContext
from oncelog.node.partitions.hosted_partition import HostedPartition
from oncelog.node.partitions.replica_manager import ReplicaManager
from oncelog.storage.log_config import LogConfig
from oncelog.storage.partition_log import PartitionLog
from oncelog.wire.framing import encode_request_header
from oncelog.wire.messages import control

from .fake_broker import FakeBroker
from .leading_broker import Answer

FAR_MS = 1 << 40
TOPIC_ID = bytes(range(16))
SETTINGS = {
    "offsets_topic_num_partitions": "1",
    "group_min_session_timeout_ms": "50",
    "offsets_commit_timeout_ms": "20000",
}


class CoordinatingBroker:
    """Make it inside a running event loop; `lead` begins a term."""

    def __init__(self, directory: Path, *, topic: bool = True, **settings: str) -> None:
        self.fake = FakeBroker(3, **SETTINGS | settings)
        self.services = self.fake.services
        self.clock = SystemClock()
        self.directory = directory
        self.replicas = ReplicaManager(
            loop=asyncio.get_running_loop(),
            clock=self.clock,
            partition_exists=lambda topic, index: True,
        )
        self.replicas.peers.live = {1: 1, 2: 1}
        self.services.replicas = self.replicas
        self.groups = GroupCoordinator(
            config=self.services.config,
            state=self.fake.state,
            replicas=self.replicas,
            clock=self.clock,
        )
        self.services.groups = self.groups
        self.groups.start()
        log = logging.getLogger("oncelog.test")
        self.dispatcher = Dispatcher(control_plane_apis(log), log)
        if topic:
            command = CreateTopics((new_topic(self.services.config, OFFSETS_TOPIC),))
            assert not self.fake.controller.apply(command).items[0].error
        self.hosted: HostedPartition

    def lead(
        self,
        *,
        replicas: tuple[int, ...] = (1,),
        isr: tuple[int, ...] | None = None,
        min_insync_replicas: int = 1,
        epoch: int = 1,
        high_watermark: int = 0,
        config: LogConfig | None = None,
    ) -> None:
        """Open the log and lead it."""
        log = PartitionLog.open(
            self.directory,
            topic=OFFSETS_TOPIC,
            partition=0,
            topic_id=TOPIC_ID,
            config=config or LogConfig(),
            high_watermark=high_watermark,
            now_ms=self.clock.wall_ms(),
        )
        self.hosted = HostedPartition(OFFSETS_TOPIC, 0, TOPIC_ID, log)
        self.replicas.add(self.hosted)
        self.hosted.lead(
            Partition(
                replicas=replicas,
                isr=replicas if isr is None else isr,
                leader=1,
                leader_epoch=epoch,
            ),
            node_id=1,
            broker_epoch=1,
            min_insync_replicas=min_insync_replicas,
            peers=self.replicas.peers,
            now_ms=self.clock.monotonic_ms(),
            lag_time_max_ms=FAR_MS,
        )
        assert self.hosted.leader is not None
        raised = self.hosted.leader.tick(self.clock.monotonic_ms())
        self.replicas.raise_high_watermark(self.hosted, raised)
        self.replicas.part_changed(self.hosted)

    def resign(self) -> None:
        """Node 2 leads it now."""
        self.hosted.follow(Partition(replicas=(1, 2), isr=(2,), leader=2, leader_epoch=99))
        self.replicas.part_changed(self.hosted)
        self.replicas.release_waiters(self.hosted, 6)

    def replicate(self) -> None:
        """Node 2 has everything."""
        assert self.hosted.leader is not None
        outcome = self.hosted.leader.follower_fetched(
            2, 1, self.hosted.log.log_end_offset, self.clock.monotonic_ms()
        )
        self.replicas.raise_high_watermark(self.hosted, outcome.high_watermark)

    @property
    def shard(self) -> GroupShard:
        return self.groups.shard_for("any")

    def send(self, api_key: int, version: int, values: Mapping[str, Any]) -> Answer:
        """Ask; the answer may come later."""
        frame = encode_request_header(api_key, version, 1, "test")
        frame += control.encode_request(api_key, version, values)
        view = memoryview(bytearray(frame))
        context = RequestContext(self.services, 1, "127.0.0.1")
        outcome = self.dispatcher.dispatch(context, self.dispatcher.find(view), view)
        return Answer(api_key, version, outcome)

    async def ask(self, api_key: int, version: int, values: Mapping[str, Any]) -> Any:
        return await self.send(api_key, version, values).value()


async def until(holds: Callable[[], object], timeout_s: float = 10) -> None:
    async with asyncio.timeout(timeout_s):
        while not holds():
            await asyncio.sleep(0.002)
