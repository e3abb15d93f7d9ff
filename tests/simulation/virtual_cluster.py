"""A whole cluster with its clients in one process. A seed determines all random choices.

with VirtualCluster.made(seed, shape) as cluster:
    cluster.start()
    client = cluster.new_client()
    task = client.run(work(cluster.bootstrap))
    cluster.run(10, until=task.done)
"""

import asyncio
import contextlib
import gc
import logging
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from oncelog.client.produce import sender
from oncelog.coordinator.raft.settings import RaftSettings
from oncelog.coordinator.transactions import decisions
from oncelog.deploy.cluster.layout import ClusterFile, NodeEntry
from oncelog.deploy.cluster.properties import node_properties
from oncelog.node.config.broker_config import BrokerConfig
from oncelog.node.controller import service
from oncelog.node.partitions import log_maintenance
from oncelog.node.partitions.hosted_partition import HostedPartition
from oncelog.replication import replica_server
from oncelog.wire.errors import KafkaError

from .outcome import Shape
from .virtual_disk import Disks
from .virtual_links import Exchange
from .virtual_loop import Timeline
from .virtual_node import WALL_MS, VirtualClient, VirtualNode, silence
from .virtual_slices import slices_take_time
from .virtual_sockets import Sockets
from .virtual_threads import locks_are_virtual
from .wires import CLIENT_NUMBERS, PORT_BASE, Wires

QUIET_PACE = 8.0  # from here on a cluster's timers are as slow as Apache Kafka's
GARBAGE_MAX = 400_000  # uncollected objects of former clusters: some 100 MB
EPOCHS_FIRST = (0, 32_758, 32_764)  # of new transactional ids; 32,766 is the last
CLUSTER_ID = "simulated-cluster-0000"
RAFT = RaftSettings(
    heartbeat_interval_ms=300,
    election_timeout_min_ms=1_200,
    election_timeout_max_ms=2_400,
    command_bytes_max=128 << 10,
    segment_bytes=512 << 10,
    segments_max=4,
    snapshot_entries=250,
    retained_entries=40,
    append_bytes_max=32 << 10,
    snapshot_chunk_bytes=16 << 10,
)
QUIET_RAFT = replace(
    RAFT,
    heartbeat_interval_ms=1_300,
    election_timeout_min_ms=4_000,
    election_timeout_max_ms=6_500,
)
QUIET_BROKER = {
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "2000",
    "replica.lag.time.max.ms": "10000",
    "replica.fetch.wait.max.ms": "5000",
    "replica.fetch.backoff.ms": "500",
}
BROKER = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "1000",
    "replica.lag.time.max.ms": "4000",
    "replica.fetch.wait.max.ms": "2000",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "600",
    "group.consumer.assignment.interval.ms": "300",
    "replica.high.watermark.checkpoint.interval.ms": "7000",
    "log.flush.offset.checkpoint.interval.ms": "20000",
    "log.flush.start.offset.checkpoint.interval.ms": "20000",
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "1500",
    "log.cleaner.min.cleanable.ratio": "0.1",
}


class VirtualCluster:
    """A simulated cluster of nodes and clients, created by `made`."""

    def __init__(self, seed: int, shape: Shape, root: Path) -> None:
        self.seed, self.shape, self.root = seed, shape, root
        self.timeline = Timeline(seed)
        if shape.step_cpu_ms:
            self.timeline.step_cpu_s = shape.step_cpu_ms / 1_000
        self.random = random.Random(self.timeline.random.getrandbits(64))
        self.wires = Wires(self.timeline)
        self.sockets = Sockets(self.timeline, self.wires)
        self.exchange = Exchange(self.wires)
        self.ids = list(range(1, shape.nodes + 1))
        self.disks = Disks(root, self.timeline, self.ids)
        self.bootstrap = ",".join(f"127.0.0.1:{PORT_BASE + i}" for i in self.ids)
        self.complaints: list[str] = []
        self.broken: list[
            tuple[str, str]
        ] = []  # (name, words) of violations that its administrator saw
        self.clients: list[VirtualClient] = []
        self.nodes = {i: self._make_node(i) for i in self.ids}
        self.on_events: Callable[[], None] | None = None
        self.on_log: Callable[[str], object] | None = None  # takes the nodes' logs

    @classmethod
    @contextlib.contextmanager
    def made(
        cls, seed: int, shape: Shape, on_log: Callable[[str], object] | None = None
    ) -> "Iterator[VirtualCluster]":
        """Yield a cluster that is not started. Clocks and disks are simulated inside the block."""
        base = "/dev/shm" if Path("/dev/shm").is_dir() else None
        root = Path(tempfile.mkdtemp(prefix="oncelog-simulation-", dir=base))
        cluster = cls(seed, shape, root)
        cluster.on_log = on_log
        state = random.getstate()
        collects = gc.isenabled()
        gc.disable()  # a collection would run finalizers at moments that no seed decides
        try:
            with (
                cluster._time_is_virtual(),
                cluster.disks.installed(),
                cluster._listening_to_logs(),
                cluster._beating_slowly(),
                cluster._epochs_begin_late(),
                locks_are_virtual(),
                slices_take_time(random.Random(seed)),
            ):
                random.seed(seed)
                try:
                    yield cluster
                finally:
                    cluster._end()
        finally:
            with _silence():
                cluster.forget()
                if collects or gc.get_count()[0] > GARBAGE_MAX:
                    gc.collect()
            random.setstate(state)
            if collects:
                gc.enable()
            shutil.rmtree(root, ignore_errors=True)

    # -- events

    def start(self) -> None:
        """Start all nodes, and run until they serve."""
        for node in self.nodes.values():
            node.start()
        if not self.run(60, lambda: all(node.is_serving for node in self.nodes.values())):
            raise RuntimeError(
                f"the cluster does not serve: {[n.ends for n in self.nodes.values()]}"
            )

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let virtual time pass, and return whether `until` became true. See Timeline.run."""
        return self.timeline.run(seconds, until, self.on_events)

    def new_client(self) -> VirtualClient:
        client = VirtualClient(CLIENT_NUMBERS + len(self.clients), self.timeline, self.sockets)
        self.clients.append(client)
        return client

    def finish(self, work: Any, seconds: float = 60.0) -> Any:
        """Run a coroutine in a new client process, and return its result.

        Raises TimeoutError if the coroutine takes more than `seconds` of virtual time.
        """
        client = self.new_client()
        task = client.run(work)
        if not self.run(seconds, task.done):
            raise TimeoutError(f"not done in {seconds} virtual seconds: {work}")
        return task.result()

    @property
    def serving(self) -> list[VirtualNode]:
        """Return the nodes that serve and are not paused."""
        return [n for n in self.nodes.values() if n.is_serving and not n.is_paused]

    def failures(self) -> list[str]:
        """Return the unhandled errors of all processes, and the errors in the brokers' logs."""
        loops = [n.loop for n in self.nodes.values() if n.loop is not None]
        found = [f for loop in loops for f in loop.failures]
        found += [f for client in self.clients for f in client.loop.failures]
        for node in self.nodes.values():
            found += [f for one in node.remains for f in getattr(one, "failures", ())]
        return [*found, *self.complaints]

    def forget(self) -> None:
        """Release all objects of the cluster, without warnings about unfinished tasks."""
        for part in (*self.nodes.values(), *self.clients):
            silence(part.remains)
            part.remains.clear()
        self.nodes.clear()
        self.clients.clear()
        self.timeline._ready.clear()
        self.timeline._timers.clear()

    # -- inside

    def _make_node(self, node_id: int) -> VirtualNode:
        shape = self.shape
        settings = {
            **BROKER,
            **(QUIET_BROKER if shape.pace >= QUIET_PACE else {}),
            "default.replication.factor": str(min(3, shape.nodes)),
            "min.insync.replicas": str(min(2, shape.nodes)),
            "offsets.topic.replication.factor": str(min(3, shape.nodes)),
            "transaction.state.log.num.partitions": str(shape.transaction_shards),
            **({"log.flush.interval.messages": "1"} if shape.durable else {}),
            "log.retention.check.interval.ms": str(self._retention_check_ms()),
            "oncelog.record.validation": random.Random(f"checks of {self.seed}").choice(
                ["batch", "skeleton", "full"]
            ),
            **dict(shape.broker),
        }
        entries = {i: NodeEntry(i, "127.0.0.1", PORT_BASE + i) for i in self.ids}
        cluster = ClusterFile(CLUSTER_ID, str(self.root), "", list(entries.values()), settings)
        directory = Path(self.disks.nodes[node_id].path)
        config = BrokerConfig.from_properties(node_properties(entries[node_id], cluster, directory))
        raft = QUIET_RAFT if shape.pace >= QUIET_PACE else RAFT
        # Whether a node restarts from its journal or from a snapshot, and how old the snapshot is.
        snapshot_entries = random.Random(f"raft of {self.seed}").choice([20, 60, 250])
        raft = replace(
            raft, snapshot_entries=snapshot_entries, retained_entries=snapshot_entries // 6
        )
        return VirtualNode(
            node_id, config, raft, self.timeline, self.sockets, self.exchange, self.disks
        )

    def _retention_check_ms(self) -> int:
        """Return the interval of retention checks, which is short for some seeds."""
        often_ms = random.Random(f"retention of {self.seed}").choice([100, 1_000, 4_000])
        return often_ms * (8 if self.shape.pace >= QUIET_PACE else 1)

    def _end(self) -> None:
        for node in self.nodes.values():
            node.kill()
        for client in self.clients:
            client.kill()

    @contextlib.contextmanager
    def _time_is_virtual(self) -> Iterator[None]:
        """Replace the functions of `time` by virtual clocks while the context is open."""
        timeline = self.timeline

        def wall_ns() -> int:
            return WALL_MS * 1_000_000 + timeline.now_ns

        replaced = {
            "monotonic_ns": lambda: timeline.now_ns,
            "monotonic": lambda: timeline.now,
            "time_ns": wall_ns,
            "time": lambda: wall_ns() / 1e9,
        }
        with contextlib.ExitStack() as stack:
            for name, function in replaced.items():
                stack.enter_context(mock.patch.object(time, name, function))
            # The order of a set of these must not depend on where in memory they lie.
            stack.enter_context(
                mock.patch.object(HostedPartition, "__hash__", lambda self: hash(self.key))
            )
            yield

    def _epochs_begin_late(self) -> AbstractContextManager[object]:
        """Return a context in which, for some seeds, producer ids soon reach their last epoch."""
        first = random.Random(f"epochs of {self.seed}").choice(EPOCHS_FIRST)
        return mock.patch.object(decisions, "EPOCH_FIRST", first)

    @contextlib.contextmanager
    def _beating_slowly(self) -> Iterator[None]:
        """Make periodic checks rarer in a quiet cluster while the context is open."""
        with contextlib.ExitStack() as stack:
            if self.shape.pace >= QUIET_PACE:
                for module, name, milliseconds in (
                    (log_maintenance, "WRITE_BACK_CHECK_MS", 5_000),
                    (service, "TICK_MS", 500),
                    (sender, "IDLE_MS", 2_000),
                    (replica_server, "POLL_WAIT_MS_MAX", 2_000),
                ):
                    stack.enter_context(mock.patch.object(module, name, milliseconds))
            yield

    @contextlib.contextmanager
    def _listening_to_logs(self) -> Iterator[None]:
        """Record the errors in the brokers' logs while the context is open."""
        logger, handler = logging.getLogger("oncelog"), _Listener(self)
        before = (logger.level, logger.propagate, logger.handlers[:])
        asyncio_logger = logging.getLogger("asyncio")
        asyncio_level = asyncio_logger.level
        asyncio_logger.setLevel(logging.CRITICAL + 1)
        logger.setLevel(logging.INFO if self.on_log is not None else logging.ERROR)
        logger.propagate, logger.handlers = False, [handler]
        try:
            yield
        finally:
            asyncio_logger.setLevel(asyncio_level)
            logger.setLevel(before[0])
            logger.propagate, logger.handlers = before[1], before[2]


def bury() -> None:
    """Run the garbage collector for ended clusters, without warnings."""
    with _silence():
        gc.collect()


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Suppress log messages and warnings about unfinished objects while the context is open."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        sys.unraisablehook = hook


class _Listener(logging.Handler):
    """A log handler that records unexpected exceptions in the cluster."""

    def __init__(self, cluster: VirtualCluster) -> None:
        super().__init__(logging.DEBUG)
        self._cluster = cluster

    def emit(self, record: logging.LogRecord) -> None:
        cluster = self._cluster
        if cluster.on_log is not None:
            who = getattr(asyncio._get_running_loop(), "number", 0)
            why = f" {record.exc_info[1]!r}" if record.exc_info else ""
            cluster.on_log(
                f"{cluster.timeline.now - 1000:9.3f} {who} {record.levelname} {record.name}: "
                f"{record.getMessage()}{why}"
            )
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(
            error, KafkaError | OSError | asyncio.CancelledError
        ):
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            where = (
                "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
            )
            cluster.complaints.append(f"{record.getMessage()}: {error!r} at {where}")
