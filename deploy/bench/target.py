"""What a benchmark runs against: a given cluster, the one in a directory, or one of its own."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psutil

from ..cluster.failure import Failure

if TYPE_CHECKING:
    from ...client.blocking import BlockingAdmin
    from ..cluster.local_cluster import Cluster


Result = TypeVar("Result")


@dataclass(slots=True)
class BenchTarget:
    """A cluster; with processes to look into when it is a local one of ours."""

    bootstrap: str
    admin: "BlockingAdmin"
    cluster: "Cluster | None" = None
    _topics: list[str] = field(default_factory=list[str])

    def make_topic(
        self, *, partitions: int, replication_factor: int, min_insync_replicas: int
    ) -> str:
        """A new topic whose replicas are all in sync; it goes with `drop_topics`."""
        name = f"bench-{time.time_ns():x}"
        configs = {"min.insync.replicas": str(min_insync_replicas)}
        self.admin.run(
            lambda a: a.create_topic(
                name, partitions=partitions, replication_factor=replication_factor, configs=configs
            )
        )
        self._topics.append(name)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(Exception):
                found = self.admin.run(lambda a: a.describe_topics([name]))
                if len(found) == partitions and all(
                    p.leader >= 0 and len(p.isr) == replication_factor for p in found
                ):
                    return name
            time.sleep(0.05)
        raise TimeoutError(f"{name}: not all replicas came into sync within 30 s")

    def drop_topics(self) -> None:
        """Delete what `make_topic` made."""
        if self._topics:
            with contextlib.suppress(Exception):
                self.admin.run(lambda a: a.delete_topics(self._topics))
            self._topics.clear()

    def go_round(
        self,
        results: Sequence[Result],
        repetitions: int,
        replication_factor: int,
        measure: Callable[[Result, int], str],
        say: Callable[[str], None],
    ) -> None:
        """Measure all cells again and again; Failure when the cluster is too small for them."""
        nodes = len(self.admin.run(lambda a: a.describe_cluster()).brokers)
        if replication_factor > nodes:
            raise Failure(
                f"The cluster has {nodes} nodes; replication factor {replication_factor} does "
                "not fit. Give a smaller --rf."
            )
        total = len(results) * repetitions
        for number, (repetition, result) in enumerate(
            itertools.product(range(repetitions), results), 1
        ):
            figures = measure(result, repetition)
            say(f"{number}/{total}  {figures}")
            self.drop_topics()

    def usage(self) -> "list[NodeUsage]":
        """CPU, memory and link bytes of each node now; empty when the nodes are not ours."""
        if self.cluster is None:
            return []
        return [measure(self.cluster, i) for i in self.cluster.node_ids]


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """What a node has used up to now; None: unknown."""

    node_id: int
    cpu_s: float
    rss_bytes: int
    link_bytes_sent: int | None


def measure(cluster: "Cluster", node_id: int) -> NodeUsage:
    """Look at one node; zeros when it is down."""
    process = cluster.node(node_id).find()
    if process is None:
        return NodeUsage(node_id, 0.0, 0, None)
    try:
        with process.oneshot():
            times = process.cpu_times()
            rss_bytes = process.memory_info().rss
    except psutil.NoSuchProcess:
        return NodeUsage(node_id, 0.0, 0, None)
    return NodeUsage(node_id, times.user + times.system, rss_bytes, link_counters(cluster, node_id))


def link_counters(cluster: "Cluster", node_id: int) -> int | None:
    """Bytes that this node has sent to its peers since it started; None where it does not say.

    The node's own counters are the only source: no operating system counts bytes by process on
    Unix sockets.
    """
    with contextlib.suppress(Failure, KeyError, TypeError, ValueError):
        return int(cluster.ask_node(node_id, {"op": "metrics"})["peer_bytes_sent"])
    return None


@contextlib.contextmanager
def bench_target(data: Path, bootstrap: str | None) -> Iterator[BenchTarget]:
    """The cluster to measure: --bootstrap, else the running one in `data`, else a new one."""
    from ..cluster import layout
    from ..cluster.blocking_admin import blocking_admin
    from ..cluster.local_cluster import Cluster
    from ..cluster.terminal import say

    with contextlib.ExitStack() as stack:
        cluster = None
        if bootstrap is None:
            file = layout.read(data.resolve())
            opened = Cluster.open(data) if file is not None else None
            if opened is not None and any(s.state == "running" for s in opened.status()):
                cluster = opened
            else:
                say("no cluster runs here: starting one of 3 nodes for the measurement")
                cluster = stack.enter_context(Cluster(3))
            bootstrap = cluster.bootstrap
        admin = stack.enter_context(blocking_admin(bootstrap, timeout_ms=20_000))
        target = BenchTarget(bootstrap, admin, cluster)
        stack.callback(target.drop_topics)
        yield target
