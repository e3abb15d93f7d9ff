"""A cluster of broker processes on this machine, and faults with verified effects.

    with Cluster(nodes=3) as cluster:
        producer = confluent_kafka.Producer(cluster.client_config())
        cluster.kill(cluster.leader("orders", 0))

The command line uses the same object. Without `data`, the cluster is in a temporary directory,
which is removed at the end. With `data`, the directory stays, and `Cluster.open` finds it. A
cluster in a `with` block or in a temporary directory ends with this process, even if the process is
killed (guardian.py).
"""

import contextlib
import copy
import random
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from . import admin_socket_client, layout, link_faults, ports, properties, targets
from .clock import ClockControl
from .ends.guardian import KEEP, PURGE, guardian
from .ends.interrupts import uninterrupted
from .failure import Failure
from .layout import ClusterFile
from .node_process import NodeNotReady, NodeProcess, NodeStatus, end_nodes
from .plan import ClusterPlan
from .secured.files import CLIENT_KINDS, USERS, admin_values, client_file, prepare

READY_TIMEOUT_S = 30.0
T = TypeVar("T")


class Cluster:
    """A local cluster. A method's target is a node's number or a role, such as "controller"."""

    node_type: type[NodeProcess] = NodeProcess

    def __init__(
        self,
        nodes: int = 3,
        *,
        data: str | Path | None = None,
        first_id: int = 1,
        port: int | None = None,
        rf: int | None = None,
        min_isr: int | None = None,
        txn_shards: int | None = None,
        clock: str | None = None,
        secure: bool = False,
        metrics: bool | None = None,
        metrics_port: int | None = None,
        config: Mapping[str, Any] | None = None,
        profile: str = "local",
        seed: int | None = None,
    ) -> None:
        self._plan = ClusterPlan(
            nodes=nodes,
            first_id=first_id,
            first_port=port,
            profile=profile,
            replication_factor=rf,
            min_insync_replicas=min_isr,
            transaction_shards=txn_shards,
            clock=clock,
            is_secured=secure,
            has_metrics=metrics,
            first_metrics_port=metrics_port,
            overrides={k: _text(v) for k, v in (config or {}).items()},
        )
        self.is_temporary = self.is_guarded = data is None
        temporary = f"{tempfile.gettempdir()}/oncelog-{secrets.token_hex(4)}"
        self.data = Path(data or temporary).resolve()
        self._random = random.Random(seed)
        self._file: ClusterFile | None = None
        self._nodes: dict[int, NodeProcess] = {}
        self._admin: Any = None
        self._admin_lock = threading.Lock()
        self._starting = threading.Lock()
        self._is_ended = False  # faults of other threads start no node any more

    @classmethod
    def open(cls, data: str | Path) -> "Cluster":
        """Open the cluster that `up` has created in this directory, running or stopped."""
        path = Path(data).resolve()
        file = layout.existing(path)
        cluster = cls(len(file.nodes), data=path, profile=file.profile)
        cluster._adopt(file)
        return cluster

    def __enter__(self) -> Self:
        self.is_guarded = True
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down(purge=self.is_temporary)

    # --- what a person asks it

    @property
    def file(self) -> ClusterFile:
        if self._file is None:
            raise Failure("The cluster has not been started: call up() or use `with`.")
        return self._file

    @property
    def bootstrap(self) -> str:
        return self.file.bootstrap

    @property
    def connection(self) -> str:
        """Return a bootstrap line or the path of a client file, for a process that connects.

        See secured/connection.py.
        """
        if not self.file.is_secured:
            return self.bootstrap
        return str(client_file(self.data, USERS[0], CLIENT_KINDS[0]))

    @property
    def node_ids(self) -> list[int]:
        return self.file.node_ids

    @property
    def clock(self) -> ClockControl:
        """Return the object that advances the cluster's clock.

        Its methods raise ClockNotControlled unless the cluster has a controlled clock.
        """
        return ClockControl(self)

    @property
    def peer_directory(self) -> Path:
        """Return the directory with the nodes' Unix sockets, for peers and for admin requests."""
        return Path(self.file.peer_directory)

    def client_config(self, **settings: Any) -> dict[str, Any]:
        """Return the settings of a confluent-kafka client, with address, login and `settings`."""
        return {"bootstrap.servers": self.bootstrap, **admin_values(self.data), **settings}

    def node(self, node_id: int) -> NodeProcess:
        """Return the object for the process of a node."""
        self.file.entry(node_id)
        return self._nodes[node_id]

    def status(self) -> list[NodeStatus]:
        """Return state, memory and CPU of each node's process, from the operating system."""
        return [self._nodes[i].status() for i in self.node_ids]

    def ask(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Run `work(admin)` with a `client.admin.Admin` and return its result."""
        from .blocking_admin import blocking_admin

        with self._admin_lock:
            if self._admin is None:
                self._admin = blocking_admin(self.client_config())
        return self._admin.run(work)

    def leader(self, topic: str, partition: int) -> int:
        """Return the node that leads the partition, or raise Failure without a leader."""
        for p in self.ask(lambda admin: admin.describe_topics([topic])):
            if p.partition == partition:
                if p.leader < 0:
                    raise Failure(f"{topic}/{partition} has no leader at the moment.")
                return p.leader
        raise Failure(f"There is no partition {topic}/{partition}.")

    def coordinator(self, kind: Literal["group", "txn"], name: str) -> int:
        """Return the node that coordinates a group or a transactional id, existing or not."""
        key_type = {"group": 0, "txn": 1}[kind]
        return self.ask(lambda admin: admin.find_coordinator(name, key_type))

    def controller(self) -> int:
        """Return the node that leads the metadata quorum."""
        return self.ask(lambda admin: admin.controller())

    def resolve(self, target: int | str, *, states: Collection[str] = ("running",)) -> int:
        """Return the id of the node that a target names now.

        A role names the node that currently has it. `random` names a random node in one of these
        states.
        """
        match targets.parse(str(target)):
            case ("node", _, node_id):
                return self.file.entry(node_id).node_id
            case ("leader", topic, partition):
                return self.leader(topic, partition)
            case ("group" | "txn" as kind, name, _):
                return self.coordinator(kind, name)
            case ("controller", _, _):
                return self.controller()
        fitting = [s.node_id for s in self.status() if s.state in states]
        if not fitting:
            raise Failure("No node is in a state in which this is possible. See: oncelog ps")
        return self._random.choice(fitting)

    # --- life

    def up(self, on_ready: Callable[[int], None] = lambda node_id: None) -> None:
        """Start all nodes, and return when all of them serve.

        `on_ready` is called with the id of each node that serves. A stopped cluster in the
        directory is started again on its data. On Failure, the earlier state is restored.
        """
        with self._guarded_where_it_is(), layout.locked(self.data):
            known = layout.read(self.data)
            before = copy.deepcopy(known)
            file = self._file_to_start(known)
            self._adopt(file)
            self._is_ended = False
            try:
                first = PURGE if known is None else KEEP
                guardian.keep("cluster", self.data, f"{first} {file.owner}")
                layout.write(self.data, file)  # before any node runs, because `down` must find it
                self._start(self.node_ids, on_ready)
                file.is_complete = True
                layout.write(self.data, file)
            except NodeNotReady as problem:
                told = problem.with_log() if before is None else problem
                self._undo_up(before)
                raise told from None
            except BaseException:
                self._undo_up(before)
                raise
            if not self.is_guarded:
                guardian.forget("cluster", self.data)
            elif not self.is_temporary:
                guardian.keep("cluster", self.data, f"{KEEP} {file.owner}")

    def down(self, *, purge: bool = False) -> list[int]:
        """Stop every node gracefully. With `purge`, kill every node and remove the data.

        Returns the nodes that did not stop after a SIGTERM and had to be killed, which is a bug of
        ours.
        """
        with self._admin_lock:
            if self._admin is not None:
                self._admin.close()
                self._admin = None
        with self._starting:
            self._is_ended = True
        with layout.locked(self.data):
            killed = end_nodes(self._nodes.values(), is_graceful=not purge)
            layout.remove_peer_directory(self.peer_directory)
            if purge:
                self._remove()
            self._unguard()  # before another command may start it again
        return killed

    def start(self, target: int | str) -> int:
        """Start a stopped node. Return the node's id when the node serves."""
        node_id = self.resolve(target, states=("down",))
        if self.node(node_id).find(thorough=True) is not None:
            raise Failure(f"Node {node_id} is already running. See: oncelog ps")
        ports.require_free([self.file.entry(node_id).port])
        self._start([node_id])
        return node_id

    def start_all(self, node_ids: Iterable[int]) -> None:
        """Start several nodes in this order, then wait until all serve.

        A single node may not become ready without the others.
        """
        self._start(node_ids)

    def restart(self, target: int | str) -> int:
        """Stop a node gracefully, and start it again on the same data. Return the node's id."""
        return self.start(self.stop(target))

    # --- faults

    def kill(self, target: int | str) -> int:
        """Send SIGKILL to a node.

        Returns the node's id when the pid is gone and the port refuses connections.
        """
        node_id = self.resolve(target, states=("running", "paused"))
        self.node(node_id).kill()
        return node_id

    def stop(self, target: int | str) -> int:
        """Send SIGTERM to a node, and wait until it has ended. Return the node's id.

        Before its end, the node moves its leaderships to other nodes.
        """
        node_id = self.resolve(target, states=("running", "paused"))
        self.node(node_id).terminate()
        return node_id

    def pause(self, target: int | str) -> int:
        """Send SIGSTOP to a node. Return the node's id when the process is in state T.

        A paused process keeps its connections and answers nothing.
        """
        node_id = self.resolve(target)
        self.node(node_id).pause()
        return node_id

    def resume(self, target: int | str) -> int:
        """Send SIGCONT to a paused node. Return the node's id when the node runs again."""
        node_id = self.resolve(target, states=("paused",))
        self.node(node_id).resume()
        return node_id

    def partition(self, one: Iterable[int], other: Iterable[int], *, one_way: bool = False) -> None:
        """Cut the links between two groups of nodes, with `one_way` only from `one` to `other`.

        Clients still reach every node. The nodes hold the cut in memory, so a restart ends the cut.
        Raises Failure, without any cut, when one of the nodes is down or paused.
        """
        link_faults.cut(self, one, other, one_way=one_way)

    def slow(self, target: int | str, delay_ms: int) -> int:
        """Delay a node's messages to its peers. Return the node's id."""
        node_id = self.resolve(target)
        for peer in self.node_ids:
            if peer != node_id:
                self.ask_node(node_id, {"op": "delay", "peer": peer, "delay_ms": delay_ms})
        return node_id

    def ask_node(self, node_id: int, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request to a node's admin socket (counters, link faults) and return the answer."""
        return admin_socket_client.ask(self.peer_directory, node_id, request)

    def heal(self) -> None:
        """Restore the links of all nodes, resume paused nodes, and start stopped nodes."""
        for status in self.status():
            if status.state == "paused":
                self.resume(status.node_id)
        running = [s.node_id for s in self.status() if s.state == "running"]
        for node_id in running:
            self.ask_node(node_id, {"op": "heal"})
        self.start_all([i for i in self.node_ids if i not in running])

    def wait_for_isr(
        self, topic: str | None = None, size: int | None = None, *, timeout_s: float = 30.0
    ) -> None:
        """Return when `missing_replicas` is empty, or raise Failure when replicas stay missing."""
        deadline = time.monotonic() + timeout_s
        while missing := self.missing_replicas(topic, size):
            if time.monotonic() > deadline:
                names = ", ".join(missing[:3])
                raise Failure(f"Not all replicas were in sync within {timeout_s:.0f} s: {names}.")
            time.sleep(0.02)

    def missing_replicas(self, topic: str | None = None, size: int | None = None) -> list[str]:
        """Return text for each partition without a leader, or with too few replicas in sync.

        Too few are fewer than `size`, by default fewer than all replicas.
        """
        from .readiness import missing_replicas  # slow to import

        return self.ask(lambda admin: missing_replicas(admin, topic, size))

    # --- inner

    def _file_to_start(self, known: ClusterFile | None) -> ClusterFile:
        """Return the cluster.json with which `up` starts the nodes.

        Raises Failure if foreign files in the directory, running nodes, invalid options or taken
        ports prevent the start.
        """
        if known is None:
            layout.require_usable(self.data)
            file = self._plan.new_file()
        else:
            self._adopt(known)
            running = [i for i in self.node_ids if self._nodes[i].find(thorough=True)]
            file = self._plan.reused_file(self.data, known, running)
        self._plan.require_valid(file, self.data)
        ports.require_free([node.port for node in file.nodes])
        file.is_complete, file.owner = False, secrets.token_hex(8)
        return file

    def _undo_up(self, before: ClusterFile | None) -> None:
        """End the nodes of a failed `up`, and restore the directory.

        Without `before` no cluster existed, and all files are removed. Nodes that do not end stay
        registered with the guardian.
        """
        with uninterrupted(), contextlib.suppress(Failure, OSError):
            end_nodes(self._nodes.values(), is_graceful=False)
            layout.remove_peer_directory(self.peer_directory)
            if before is not None:
                layout.write(self.data, before)
            else:
                self._remove()
            self._unguard()

    @contextlib.contextmanager
    def _guarded_where_it_is(self) -> Iterator[None]:
        """Register a directory with the guardian before the block creates a cluster in it.

        The empty owner makes the guardian spare a cluster that another `up` has created meanwhile.
        The registration is cancelled if the block fails and leaves no cluster file, or if no
        directory is there after it.
        """
        is_new = not (self.data / layout.CLUSTER_FILE).exists()
        if self.is_temporary:
            guardian.keep("directory", self.data)
        elif is_new:
            guardian.keep("cluster", self.data, f"{PURGE} ")
        try:
            yield
        except BaseException:
            is_ended = not (self.data / layout.CLUSTER_FILE).exists()  # else a node does not end
            if is_new and is_ended and not self.is_temporary:
                guardian.forget("cluster", self.data)
            raise
        finally:
            if not self.data.exists():
                self._unguard()

    def _unguard(self) -> None:
        guardian.forget("cluster", self.data)
        guardian.forget("directory", self.data)

    def _remove(self) -> None:
        """Remove all files of the cluster. A temporary directory is removed as a whole."""
        if self._file is not None:
            layout.remove_peer_directory(self.peer_directory)
        layout.remove(self.data, self._file)
        if self.is_temporary:
            shutil.rmtree(self.data, ignore_errors=True)

    def _adopt(self, file: ClusterFile) -> None:
        self._file = file
        for entry in file.nodes:
            known = self._nodes.get(entry.node_id)
            if known is None or known.entry != entry:
                self._nodes[entry.node_id] = self.node_type(self.data, entry)

    def _start(
        self, node_ids: Iterable[int], on_ready: Callable[[int], None] = lambda _: None
    ) -> None:
        with self._starting:
            if self._is_ended:
                raise Failure("The cluster has been ended: up() starts it again.")
            layout.make_peer_directory(self.peer_directory)
            if self.file.is_secured:
                prepare(self.data, self.bootstrap)
            started = [self._nodes[i] for i in node_ids]
            for node in started:
                node.directory.mkdir(mode=0o700, exist_ok=True)
                properties.write_properties(node, self.file)
                node.spawn()
        # These imports are slow, so they are made only while the nodes start.
        from ...client.loop_thread import LoopThread
        from .readiness import wait_until_ready

        ready = wait_until_ready(started, self.file.cluster_id, READY_TIMEOUT_S, on_ready)
        with contextlib.closing(LoopThread("oncelog-readiness")) as thread:
            thread.run(ready)  # an event loop of the caller does not prevent it


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
