"""The clusters of directed scenarios, of real processes or simulated in virtual time."""

import asyncio
from abc import ABC, abstractmethod
from pathlib import Path

from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.proof.judge.history.recorder import Recorder
from oncelog.proof.judge.logs.scan import dump_logs

from ..simulation.virtual_cluster import VirtualCluster
from ..simulation.wires import PORT_BASE

POLL_S = 0.05
EPOCH_BYTE = 19  # of a producer snapshot: the low byte of its first producer's epoch


class ScenarioCluster(ABC):
    """A cluster with the operations of scenarios.

    A method that injects a fault returns when the fault has its effect.
    """

    def __init__(self, bootstrap: str, node_ids: list[int], data: Path) -> None:
        self.bootstrap, self.node_ids, self.data = bootstrap, node_ids, data

    @abstractmethod
    def address(self, node_id: int) -> tuple[str, int]: ...
    @abstractmethod
    async def kill(self, node_id: int) -> None: ...
    @abstractmethod
    async def stop(self, node_id: int) -> None: ...
    @abstractmethod
    async def start(self, node_id: int) -> None: ...
    @abstractmethod
    async def cut_power(self) -> None: ...
    @abstractmethod
    async def cut_off(self, node_id: int) -> None: ...
    @abstractmethod
    async def heal(self) -> None: ...

    def flip_snapshots(self, node_id: int, topic: str, partition: int) -> int:
        """Flip a bit in each producer snapshot of a partition, and return their number."""
        flipped = 0
        for file in (self.data / f"node-{node_id}" / f"{topic}-{partition}").glob("*.snapshot"):
            content = bytearray(file.read_bytes())
            if len(content) > EPOCH_BYTE:
                content[EPOCH_BYTE] ^= 1
                file.write_bytes(content)
                flipped += 1
        return flipped

    async def dump(self, recorder: Recorder) -> None:
        """Stop all nodes, and record the contents of their disks."""
        for node_id in self.node_ids:
            await self.stop(node_id)
        dump_logs(recorder, self.data)


class ProcessCluster(ScenarioCluster):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.bootstrap, cluster.node_ids, cluster.data)
        self._cluster = cluster

    def address(self, node_id: int) -> tuple[str, int]:
        entry = self._cluster.file.entry(node_id)
        return entry.host, entry.port

    async def kill(self, node_id: int) -> None:
        await asyncio.to_thread(self._cluster.kill, node_id)

    async def stop(self, node_id: int) -> None:
        await asyncio.to_thread(self._cluster.stop, node_id)

    async def start(self, node_id: int) -> None:
        await asyncio.to_thread(self._cluster.start, node_id)

    async def cut_power(self) -> None:
        raise NotImplementedError("the power of this machine is not ours to cut")

    async def cut_off(self, node_id: int) -> None:
        others = [i for i in self.node_ids if i != node_id]
        await asyncio.to_thread(self._cluster.partition, [node_id], others)

    async def heal(self) -> None:
        await asyncio.to_thread(self._cluster.heal)

    async def dump(self, recorder: Recorder) -> None:
        await asyncio.to_thread(self._cluster.down)
        dump_logs(recorder, self.data)


class SimulatedCluster(ScenarioCluster):
    """A simulated cluster, in which a scenario runs as a coroutine of a client process."""

    def __init__(self, cluster: VirtualCluster) -> None:
        super().__init__(cluster.bootstrap, cluster.ids, cluster.root)
        self._cluster = cluster

    def address(self, node_id: int) -> tuple[str, int]:
        return "127.0.0.1", PORT_BASE + node_id

    async def kill(self, node_id: int) -> None:
        self._cluster.nodes[node_id].kill()

    async def stop(self, node_id: int) -> None:
        node = self._cluster.nodes[node_id]
        node.stop(then=lambda: None)
        while node.is_alive:
            await asyncio.sleep(POLL_S)

    async def start(self, node_id: int) -> None:
        node = self._cluster.nodes[node_id]
        node.start()
        while not node.is_serving:
            await asyncio.sleep(POLL_S)

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
