"""A simulated machine, which runs the real `Broker` on a virtual loop, network and disk."""

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

from oncelog.coordinator.raft.outcomes import CorruptJournal
from oncelog.coordinator.raft.settings import RaftSettings
from oncelog.node.broker import Broker
from oncelog.node.config.broker_config import BrokerConfig
from oncelog.node.environment import Surroundings
from oncelog.node.transactions.shard_timeouts import ShardCountMismatch
from oncelog.storage.corrupt_file import CorruptFile

from .virtual_disk import Disks
from .virtual_links import Exchange, VirtualLinks
from .virtual_loop import ProcessLoop, Timeline
from .virtual_slices import SliceClock
from .virtual_sockets import ListeningSocket, Sockets
from .virtual_threads import Stopped, Threads, outside
from .wires import PORT_BASE

REFUSALS = (CorruptFile, CorruptJournal, ShardCountMismatch)  # of damaged files, at a start
WALL_MS = 1_700_000_000_000


class NodeClock:
    """The clocks of one machine. `skew_ms` moves the wall clock."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.skew_ms = 0

    def wall_ms(self) -> int:
        return WALL_MS + int(self._timeline.now * 1_000) + self.skew_ms

    def monotonic_ms(self) -> int:
        return int(self._timeline.now * 1_000)

    def advanced_since_ms(self, moment_ms: int) -> int:
        return 0


class VirtualNode:
    """A machine. Its disk and clock persist while its process is killed and started again."""

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        raft: RaftSettings,
        timeline: Timeline,
        sockets: Sockets,
        exchange: Exchange,
        disks: Disks,
    ) -> None:
        self.node_id, self.port = node_id, PORT_BASE + node_id
        self.config = config
        self.clock = NodeClock(timeline)
        self.disk = disks.nodes[node_id]
        self.loop: ProcessLoop | None = None
        self.broker: Broker | None = None
        self.is_serving = False
        self.ends: list[str] = []  # the reasons of processes of this node that ended by themselves
        self.is_hurt = False  # its disk failed in this process, which may end by itself
        self.has_damage = False  # bytes of its files were changed, so the node may refuse to start
        self.was_hurt = False  # some logs of this process may have failed with its disk
        self.starts = 0
        self.points: dict[str, int] = {}  # how often each fault point was passed, in this process
        self.on_point: Callable[[int, str], None] | None = None
        self.remains: list[Any] = []  # of dead processes: must not be finalized
        self._raft = raft
        self._timeline, self._sockets = timeline, sockets
        self._exchange, self._disks = exchange, disks
        self._boots = 0

    @property
    def is_alive(self) -> bool:
        """Return whether the machine has a process, which may be paused."""
        return self.loop is not None

    @property
    def is_paused(self) -> bool:
        return self.loop is not None and self.loop.is_stopped

    def start(self) -> None:
        """Start a new process on this machine, unless it has one."""
        if self.loop is not None:
            return
        self.starts += 1
        timeline = self._timeline
        loop = self.loop = ProcessLoop(timeline, self.node_id, self._sockets)
        if self.port in self._sockets.powerless:
            self._sockets.powerless.discard(self.port)
            self._exchange.wires.silent.discard(self.node_id)
            self._sockets.power_is_back(self.node_id)
        self.points.clear()
        self.disk.is_in_use = True
        self.is_hurt = self.was_hurt = self.disk.is_failing
        surroundings = Surroundings(
            clock=self.clock,
            boot_id=lambda: f"boot-{self.node_id}-{self._boots}",
            rng=random.Random(timeline.random.getrandbits(64)),
            random_bytes=timeline.random.randbytes,
            executor=lambda threads, _name: Threads(loop, threads),
            slice_clock=SliceClock(random.Random(timeline.random.getrandbits(64))),
            links=self._make_links,
            listen=lambda host, port, _backlog: ListeningSocket(host, port),
            raft=self._raft,
            on_fatal=lambda error: self._ended(loop, error),
        )
        broker = self.broker = Broker(
            self.config, fault_point=self._point, surroundings=surroundings
        )
        timeline.note(6, self.node_id)
        task = loop.create_task(self._serve(broker))
        task.add_done_callback(lambda done: self._ended(loop, done.exception()))

    def kill(self, *, power: bool = False) -> None:
        """Kill the process, or cut the machine's power and lose unsynced changes."""
        loop = self.loop
        if loop is None:
            return
        with outside():
            self._kill(loop, power)

    def _kill(self, loop: ProcessLoop, power: bool) -> None:
        self._timeline.note(7, self.node_id, int(power))
        if power:
            self._boots += 1
            self._sockets.powerless.add(self.port)
            self._exchange.wires.silent.add(self.node_id)
        self.remains += [loop, self.broker, *asyncio.all_tasks(loop)]  # type: ignore[arg-type]
        loop.kill()
        self._sockets.process_died(loop, power=power)
        self._exchange.died(self.node_id, power=power)
        self._disks.died(self.node_id)
        if power:
            self.disk.cut_power()
        self.loop = self.broker = None
        self.is_serving = False

    def stop(self, then: Callable[[], object]) -> None:
        """Send SIGTERM. `then` is called when the process has ended."""
        loop, broker = self.loop, self.broker
        assert loop is not None and broker is not None
        self.is_serving = False

        async def end() -> None:
            try:
                await broker.stop()
            except Exception as error:  # the node ends all the same, with a complaint
                self._ended(loop, error)
            if loop is self.loop:
                self.kill()
            then()

        loop.create_task(end())

    @staticmethod
    def stop_here() -> None:
        """Raise Stopped, to end the current callback of a process that was just killed."""
        raise Stopped

    async def _serve(self, broker: Broker) -> None:
        await broker.start()
        self.is_serving = True
        await broker.run(asyncio.Event())

    def _ended(self, loop: ProcessLoop, error: BaseException | None) -> None:
        """Handle the unexpected end of a process, and report it unless a fault explains it."""
        if loop is self.loop:
            if not self.is_hurt and not (self.has_damage and isinstance(error, REFUSALS)):
                self.ends.append(f"node {self.node_id} ended: {error!r}")
            self.kill()

    def _make_links(self, node_id: int, _directory: Any, peers: Any, **_: Any) -> VirtualLinks:
        assert self.loop is not None
        return VirtualLinks(node_id, peers, self._exchange, self.loop)

    def _point(self, name: str) -> None:
        """Count a fault point that the broker has reached, and call `on_point`."""
        self.points[name] = self.points.get(name, 0) + 1
        if self.on_point is not None:
            self.on_point(self.node_id, name)


class VirtualClient:
    """A simulated process in which clients run."""

    def __init__(self, number: int, timeline: Timeline, sockets: Sockets) -> None:
        self.number = number
        self.loop = ProcessLoop(timeline, number, sockets)
        self._sockets = sockets
        self.remains: list[Any] = []

    def run(self, work: Any) -> "asyncio.Task[Any]":
        return self.loop.create_task(work)

    def kill(self) -> None:
        self.remains += [self.loop, *asyncio.all_tasks(self.loop)]  # type: ignore[arg-type]
        self.loop.kill()
        self._sockets.process_died(self.loop, power=False)


def silence(remains: list[Any]) -> None:
    """Suppress warnings about unfinished tasks and futures of dead processes."""
    for one in remains:
        if isinstance(one, asyncio.Task):
            one._log_destroy_pending = False  # type: ignore[attr-defined]
            with contextlib.suppress(asyncio.InvalidStateError, asyncio.CancelledError):
                if one.done():
                    one.exception()
