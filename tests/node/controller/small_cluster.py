"""Controllers of several nodes in one process. The test controls elections, the log and links."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from oncelog.coordinator.controller.controller import ControllerSettings
from oncelog.coordinator.metadata.cluster_state import ClusterState
from oncelog.coordinator.metadata.config_checks import ConfigValidators
from oncelog.coordinator.raft.group import RaftGroup
from oncelog.coordinator.raft.outcomes import DefinitelyNot, OutcomeUnknown
from oncelog.coordinator.raft.status import RaftStatus, VoterStatus
from oncelog.node.controller.client import ControllerClient
from oncelog.node.controller.service import ControllerService
from oncelog.replication.peer.transport import PeerTimeout, PeerTransport, PeerUnavailable
from oncelog.runtime.sliced_work import SlicedWork

from ..fake_raft_group import FakeRaftGroup


class Group(FakeRaftGroup):
    """The metadata group of one node. All nodes share one log."""

    def __init__(self, cluster: "SmallCluster", node_id: int) -> None:
        super().__init__()
        self.cluster = cluster
        self.node_id = node_id
        self.state = ClusterState()
        self.applied_index = 0
        self.results: dict[int, Any] = {}  # of apply, by index
        self.is_lagging = False

    @property
    def is_leader(self) -> bool:
        return self.cluster.leader_id == self.node_id

    @property
    def leader_id(self) -> int | None:
        return self.cluster.leader_known_by.get(self.node_id, self.cluster.leader_id)

    def status(self) -> RaftStatus:
        end = len(self.cluster.log) + 1
        now_ms = asyncio.get_running_loop().time() * 1_000
        voters = [
            VoterStatus(node, end if self.is_leader else -1, now_ms if self.is_leader else -1, -1)
            for node in self.cluster.groups
        ]
        return RaftStatus(self.leader_id, 1, end - 1, self.applied_index, 1, end, True, voters)

    async def submit(self, command: bytes, *, timeout_ms: float = 0) -> Any:
        await asyncio.sleep(0)
        if not self.is_leader:
            raise DefinitelyNot("not the leader")
        self.cluster.log.append(command)
        index = len(self.cluster.log)
        for group in self.cluster.groups.values():
            group.catch_up()
        result = self.results[index]
        if self.cluster.lost_answers > 0:
            self.cluster.lost_answers -= 1
            raise OutcomeUnknown("leadership was lost")
        return result

    def catch_up(self) -> None:
        if self.is_lagging:
            return
        while self.applied_index < len(self.cluster.log):
            self.applied_index += 1
            command = self.cluster.log[self.applied_index - 1]
            self.results[self.applied_index] = self.state.apply(command, self.applied_index, 1)
        for callback in self.applied:
            callback(self.applied_index)


class Links:
    """The links of one node to the controllers of other nodes."""

    def __init__(self, cluster: "SmallCluster", node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.handlers: dict[int, Callable[..., None]] = {}
        self.changes: list[Callable[[int, bool], None]] = []

    def on_request(self, kind: int, handler: Callable[..., None]) -> None:
        self.handlers[kind] = handler

    def on_peer_change(self, callback: Callable[[int, bool], None]) -> None:
        self.changes.append(callback)

    async def request(
        self, peer: int, kind: int, header: bytes, *, timeout_ms: int
    ) -> tuple[bytes, list[Any]]:
        self.cluster.requests.append((self.node_id, peer, kind))
        if peer in self.cluster.down:
            raise PeerUnavailable(f"node {peer} is down")
        future: asyncio.Future[tuple[bytes, list[Any]]] = asyncio.get_running_loop().create_future()

        def answered(answer: bytes, frames: Any) -> None:
            if not future.done():
                future.set_result((answer, list(frames)))

        def reply(answer: bytes, frames: Any) -> None:
            if self.cluster.delay_ms:
                delay_s = self.cluster.delay_ms / 1000
                asyncio.get_running_loop().call_later(delay_s, answered, answer, frames)
            else:
                answered(answer, frames)

        if peer not in self.cluster.silent:
            self.cluster.links[peer].handlers[kind](self.node_id, header, [], reply)
        try:
            # asyncio.timeout, because wait_for before Python 3.12 may swallow a cancellation.
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        except TimeoutError:
            raise PeerTimeout("no answer") from None


class SmallCluster:
    """The metadata of nodes 1 to `nodes`. Node 1 leads the metadata group at first."""

    def __init__(
        self,
        nodes: int = 3,
        *,
        validators: ConfigValidators | None = None,
        session_timeout_ms: int = 60_000,  # few scenarios send heartbeats all along
        work: Callable[[], SlicedWork] = SlicedWork,
    ) -> None:
        self.log: list[bytes] = []
        self.leader_id: int | None = None
        self.leader_known_by: dict[int, int | None] = {}
        self.down: set[int] = set()
        self.silent: set[int] = set()  # paused: nothing is answered
        self.delay_ms = 0  # of the answers
        self.lost_answers = 0
        self.requests: list[tuple[int, int, int]] = []
        self.groups: dict[int, Group] = {}
        self.links: dict[int, Links] = {}
        self.services: dict[int, ControllerService] = {}
        self.clients: dict[int, ControllerClient] = {}
        loop = asyncio.get_running_loop()
        settings = ControllerSettings(cluster_id="small", session_timeout_ms=session_timeout_ms)
        for node in range(1, nodes + 1):
            group = self.groups[node] = Group(self, node)
            links = self.links[node] = Links(self, node)
            service = self.services[node] = ControllerService(
                node_id=node,
                state=group.state,
                raft_group=cast(RaftGroup, group),
                links=cast(PeerTransport, links),
                settings=settings,
                now_ms=lambda: int(loop.time() * 1000),
                work=work(),
            )
            service.start()
            self.clients[node] = ControllerClient(
                node_id=node,
                state=group.state,
                raft_group=cast(RaftGroup, group),
                links=cast(PeerTransport, links),
                service=service,
                now_ms=lambda: int(loop.time() * 1000),
                work=work(),
                validators=validators,
            )
        self.elect(1)

    def elect(self, node: int | None) -> None:
        if self.leader_id is not None:
            old, self.leader_id = self.groups[self.leader_id], None
            for callback in old.resigned:
                callback()
        self.leader_id = node
        if node is not None:
            for elected in self.groups[node].elected:
                elected(1)

    def link(self, at: int, peer: int, is_up: bool) -> None:
        for callback in self.links[at].changes:
            callback(peer, is_up)

    async def stop(self) -> None:
        for node, client in self.clients.items():
            client.close()
            await self.services[node].stop()


@asynccontextmanager
async def running_cluster(nodes: int = 3, **options: Any) -> AsyncIterator[SmallCluster]:
    cluster = SmallCluster(nodes, **options)
    try:
        async with asyncio.timeout(20):
            yield cluster
    finally:
        await cluster.stop()
