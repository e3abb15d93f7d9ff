"""Test the controller with the real Raft engine and real links between nodes."""

import asyncio
import os
import random
import tempfile
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oncelog.coordinator.controller.controller import ControllerSettings, Heartbeat
from oncelog.coordinator.metadata.cluster_state import ClusterState
from oncelog.coordinator.metadata.commands import CreateTopics, NewTopic, RegisterBroker
from oncelog.coordinator.raft.engine import RaftEngine
from oncelog.node.controller.client import ControllerClient
from oncelog.node.controller.service import ControllerService
from oncelog.replication.messages import PeerMessage
from oncelog.replication.peer.transport import PeerTransport
from oncelog.runtime.sliced_work import SlicedWork

from ...awaiting import until
from ...coordinator.metadata.metadata_cluster import check, topic_id

VOTERS = (1, 2, 3)


class RaftNode:
    """A node with only its metadata, Raft engine and transport."""

    def __init__(self, node_id: int, directory: Path, executor: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        self.node_id = node_id
        self.state = ClusterState()
        self.transport = PeerTransport(node_id, directory, VOTERS, max_message_bytes=1 << 24)
        self.engine = RaftEngine(
            node_id=node_id,
            voters=VOTERS,
            directory=directory / f"raft-{node_id}",
            send=lambda peer, frame: self.transport.send(peer, PeerMessage.RAFT, frame),
            loop=loop,
            executor=executor,
            random=random.Random(node_id),
        )
        self.group = self.engine.add_group(0, self.state)
        self.transport.on_message(PeerMessage.RAFT, self.engine.receive)
        self.transport.on_peer_change(
            lambda peer, up: (self.engine.peer_up if up else self.engine.peer_down)(peer)
        )
        now_ms = lambda: int(loop.time() * 1000)  # noqa: E731
        self.service = ControllerService(
            node_id=node_id,
            state=self.state,
            raft_group=self.group,
            links=self.transport,
            settings=ControllerSettings(cluster_id="real", defaults={"min.insync.replicas": "2"}),
            now_ms=now_ms,
            work=SlicedWork(),
        )
        self.client = ControllerClient(
            node_id=node_id,
            state=self.state,
            raft_group=self.group,
            links=self.transport,
            service=self.service,
            now_ms=now_ms,
            work=SlicedWork(),
        )
        self.life: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.transport.start()
        await self.engine.start()
        self.service.start()
        register = RegisterBroker(self.node_id, os.urandom(16), "boot", "localhost", 9092)
        epoch = (await self.client.submit(register)).broker_epoch
        self.life = asyncio.ensure_future(self.live(epoch))

    async def live(self, epoch: int) -> None:
        while True:
            heartbeat = Heartbeat(self.node_id, epoch, self.group.applied_index)
            await self.client.heartbeat(heartbeat, timeout_ms=10_000)
            await asyncio.sleep(0.05)

    async def die(self) -> None:
        if self.life is not None:
            self.life.cancel()
            await asyncio.gather(self.life, return_exceptions=True)
            self.life = None
            await self.service.stop()
            self.client.close()
            await self.engine.stop()
            await self.transport.stop()


@pytest.fixture
@asynccontextmanager
async def nodes() -> AsyncIterator[dict[int, RaftNode]]:
    with (
        ThreadPoolExecutor(3) as executor,
        tempfile.TemporaryDirectory(prefix="oncelog-") as directory,  # ipc paths must be short
    ):
        nodes = {node: RaftNode(node, Path(directory), executor) for node in VOTERS}
        try:
            async with asyncio.timeout(30):
                yield nodes
        finally:
            for node in nodes.values():
                await node.die()


async def test_controller_node_death_moves_partition_leadership_to_other_nodes(
    nodes: dict[int, RaftNode],
) -> None:
    await asyncio.gather(*[node.start() for node in nodes.values()])
    await until(lambda: all(len(node.state.live_brokers) == 3 for node in nodes.values()))
    leader = next(node for node in nodes.values() if node.group.is_leader)
    others = [node for node in nodes.values() if node is not leader]
    assert leader.state.cluster_id == "real"

    create = CreateTopics((NewTopic("t", topic_id("t"), 3, 3),))
    (item,) = (await others[0].client.submit(create)).items
    assert item.error == 0 and "t" in others[0].state.topics

    loop = asyncio.get_running_loop()
    before = loop.time()
    await leader.die()  # the controller and a broker die together
    await until(lambda: all(node.state.brokers[leader.node_id].is_fenced for node in others))
    assert loop.time() - before < 8, "link, election and fence together"
    for node in others:
        check(node.state)
        assert all(
            p.leader != leader.node_id and leader.node_id not in p.isr
            for p in node.state.topics["t"].partitions
        )
    last = max(node.group.commit_index for node in others)
    await until(lambda: all(node.group.applied_index >= last for node in others))
    if others[0].group.applied_index == others[1].group.applied_index:
        assert others[0].state.snapshot() == others[1].state.snapshot()
