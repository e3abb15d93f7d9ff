"""A cluster of one broker in a thread of this process, so that a test can reach its parts."""

import asyncio
import tempfile
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from oncelog.node.broker import Broker
from oncelog.node.config.broker_config import BrokerConfig

from .kafka_peer import CLUSTER_ID, free_ports

T = TypeVar("T")
START_TIMEOUT_S = 30.0
SETTINGS = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}


class InnerBroker:
    """A broker in this process, used as a context manager."""

    def __init__(self, **settings: str) -> None:
        self._settings = SETTINGS | {k.replace("_", "."): v for k, v in settings.items()}
        (self.port,) = free_ports(1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="inner broker")
        self._ending: asyncio.Event | None = None
        self._serving: Any = None

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the broker's event loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_TIMEOUT_S)

    def __enter__(self) -> "InnerBroker":
        # It is in memory: the tests are about a broker's answers, not its recovery. Paths of
        # sockets must be short.
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self._folder = tempfile.TemporaryDirectory(prefix="once", dir=memory)
        root = Path(self._folder.name)
        (root / "data").mkdir()
        (root / "peers").mkdir(0o700)
        listener = f"PLAINTEXT://127.0.0.1:{self.port}"
        config = BrokerConfig.from_properties(
            {
                "node.id": "1",
                "cluster.id": CLUSTER_ID,
                "listeners": listener,
                "advertised.listeners": listener,
                "log.dirs": str(root / "data"),
                "oncelog.voters": "1",
                "oncelog.peer.directory": str(root / "peers"),
                **self._settings,
            }
        )
        self.broker = Broker(config)
        self._thread.start()
        try:
            self.run(self._start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.run(self._stop())
        finally:
            self._end()

    async def _start(self) -> None:
        self._ending = asyncio.Event()
        await self.broker.start()
        self._serving = asyncio.ensure_future(self.broker.run(self._ending))

    async def _stop(self) -> None:
        assert self._ending is not None
        self._ending.set()
        await self._serving
        await self.broker.stop()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._folder.cleanup()
