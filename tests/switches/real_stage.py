"""The stage of real processes."""

import asyncio

from oncelog.client.connection import Connection
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.judge.history.recorder import Recorder
from oncelog.deploy.judge.logs.scan import dump_logs

from ..interop.delaying_proxy import DelayingProxy
from .stage import answer, flip_epochs


class RealCluster:
    """A `ClusterOnStage` of processes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.bootstrap, self.node_ids = cluster.bootstrap, cluster.node_ids

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

    async def hold_request(
        self, node_id: int, api_key: int, version: int, body: bytes
    ) -> "HeldInProxy":
        held = HeldInProxy(self.address(node_id))
        await held.send(api_key, version, body)
        return held

    def flip_snapshots(self, node_id: int, topic: str, partition: int) -> int:
        return flip_epochs(self._cluster.node(node_id).directory / f"{topic}-{partition}")

    async def dump(self, recorder: Recorder) -> None:
        await asyncio.to_thread(self._cluster.down)
        dump_logs(recorder, self._cluster.data)


class HeldInProxy:
    """A request that stands in a proxy."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._proxy = DelayingProxy(address)
        self._connection: Connection | None = None
        self._answer: asyncio.Task[object] | None = None

    async def send(self, api_key: int, version: int, body: bytes) -> None:
        self._connection = await Connection.open(*self._proxy.address, timeout_ms=60_000)
        self._proxy.hold()
        self._answer = asyncio.create_task(answer(self._connection, api_key, version, body))
        await asyncio.sleep(0.05)  # until it is in the proxy

    async def arrive(self) -> None:
        self._proxy.let_go()

    def is_over(self) -> bool:
        return self._answer is not None and self._answer.done()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._proxy.__exit__()
