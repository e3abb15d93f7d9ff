"""The stage of the simulation: the same scenarios under virtual time."""

import asyncio

from oncelog.client.connection import Connection
from oncelog.deploy.judge.history.recorder import Recorder
from oncelog.deploy.judge.logs.scan import dump_logs

from ..simulation.virtual_cluster import VirtualCluster
from ..simulation.wires import PORT_BASE
from .stage import answer, flip_epochs

LOOK_S = 0.05


class SimulatedCluster:
    """A `ClusterOnStage`; its coroutines run in a client of the simulation."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self._cluster = cluster
        self.bootstrap, self.node_ids = cluster.bootstrap, cluster.ids

    def address(self, node_id: int) -> tuple[str, int]:
        return "127.0.0.1", PORT_BASE + node_id

    async def kill(self, node_id: int) -> None:
        self._cluster.nodes[node_id].kill()

    async def stop(self, node_id: int) -> None:
        node = self._cluster.nodes[node_id]
        node.stop(then=lambda: None)
        while node.is_alive:
            await asyncio.sleep(LOOK_S)

    async def start(self, node_id: int) -> None:
        node = self._cluster.nodes[node_id]
        node.start()
        while not node.is_serving:
            await asyncio.sleep(LOOK_S)

    async def cut_power(self) -> None:
        for node in self._cluster.nodes.values():
            node.kill(power=True)

    async def cut_off(self, node_id: int) -> None:
        others = [i for i in self.node_ids if i != node_id]
        self._cluster.wires.cut([(node_id, i) for i in others] + [(i, node_id) for i in others])

    async def heal(self) -> None:
        self._cluster.wires.heal()
        for node in self._cluster.nodes.values():
            node.start()
        for node_id in self.node_ids:
            await self.start(node_id)

    async def hold_request(
        self, node_id: int, api_key: int, version: int, body: bytes
    ) -> "HeldBack":
        connection = await Connection.open(*self.address(node_id))
        return HeldBack(connection, api_key, version, body)

    def flip_snapshots(self, node_id: int, topic: str, partition: int) -> int:
        return flip_epochs(self._cluster.root / f"node-{node_id}" / f"{topic}-{partition}")

    async def dump(self, recorder: Recorder) -> None:
        for node_id in self.node_ids:
            await self.stop(node_id)
        dump_logs(recorder, self._cluster.root)


class HeldBack:
    """A request whose bytes the network delivers when it likes; here: that are sent then."""

    def __init__(self, connection: Connection, api_key: int, version: int, body: bytes) -> None:
        self._connection = connection
        self._request = api_key, version, body
        self._answer: asyncio.Task[object] | None = None

    async def arrive(self) -> None:
        self._answer = asyncio.create_task(answer(self._connection, *self._request))

    def is_over(self) -> bool:
        return self._answer is not None and self._answer.done()

    def close(self) -> None:
        self._connection.close()
