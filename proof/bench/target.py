"""The cluster that a benchmark measures: a given one, a running one, or a new one."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...deploy.cluster.failure import Failure

if TYPE_CHECKING:
    from ...client.blocking import BlockingAdmin
    from ...deploy.cluster.local_cluster import Cluster

IN_SYNC_TIMEOUT_S = 30.0


@dataclass(slots=True)
class BenchTarget:
    """A cluster, and its processes if it is local.

    login: the settings for confluent-kafka, with values as text. They are not shown, since they
    contain secrets.
    """

    bootstrap: str
    admin: "BlockingAdmin"
    cluster: "Cluster | None" = None
    login: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    _topics: list[str] = field(default_factory=list[str])

    @property
    def client_config(self) -> dict[str, Any]:
        """Return the settings of a confluent-kafka client for this cluster, with its login."""
        return {"bootstrap.servers": self.bootstrap, **self.login}

    def make_topic(self, partitions: int, replication_factor: int, min_insync: int) -> str:
        """Create a topic, wait until its replicas are in sync, and return its name.

        `drop_topics` deletes the topic.
        """
        from ...deploy.cluster.readiness import missing_replicas

        name = f"bench-{time.time_ns():x}"
        self.admin.create_topic(
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs={"min.insync.replicas": str(min_insync)},
        )
        self._topics.append(name)
        deadline = time.monotonic() + IN_SYNC_TIMEOUT_S
        while short := self.admin.run(lambda a: missing_replicas(a, name, replication_factor)):
            if time.monotonic() > deadline:
                raise Failure(f"Not all replicas are in sync in {IN_SYNC_TIMEOUT_S} s: {short[0]}.")
            time.sleep(0.05)
        return name

    def drop_topics(self) -> None:
        """Delete the topics of `make_topic`."""
        if self._topics:
            with contextlib.suppress(Exception):
                self.admin.delete_topics(self._topics)
            self._topics.clear()

    def usage(self) -> "dict[int, NodeUsage]":
        """Return the resources used by each node since its start, or {} without local nodes."""
        if (cluster := self.cluster) is None:
            return {}
        return {
            s.node_id: NodeUsage(
                s.cpu_s, s.rss_bytes, s.context_switches, *sent_to_peers(cluster, s.node_id)
            )
            for s in cluster.status()
        }


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """The resources that a node has used since its start.

    For a stopped node the first three fields are 0. The others are None for a silent node.
    """

    cpu_s: float
    rss_bytes: int
    context_switches: int
    link_bytes_sent: int | None
    link_messages_sent: int | None

    def since(self, before: "NodeUsage") -> "NodeUsage":
        return NodeUsage(
            self.cpu_s - before.cpu_s,
            self.rss_bytes,
            self.context_switches - before.context_switches,
            _since(self.link_bytes_sent, before.link_bytes_sent),
            _since(self.link_messages_sent, before.link_messages_sent),
        )


def _since(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else now - before


def sent_to_peers(cluster: "Cluster", node_id: int) -> tuple[int | None, int | None]:
    """Return the bytes and messages that a node has sent to its peers since it started.

    Both are None if the node does not answer. Only the node's own counters have them, since no
    operating system counts bytes by process on Unix sockets.
    """
    with contextlib.suppress(Failure, KeyError, TypeError, ValueError):
        metrics = cluster.ask_node(node_id, {"op": "metrics"})
        return int(metrics["peer_bytes_sent"]), int(metrics["peer_messages_sent"])
    return None, None


@contextlib.contextmanager
def bench_target(
    data: Path, config: Mapping[str, Any] | None, *, is_secured: bool = False
) -> Iterator[BenchTarget]:
    """Open the cluster of `config`, else the running cluster in `data`, else a new one.

    is_secured: start a new cluster with TLS and logins. Raises Failure if `is_secured` and `config`
    are both given, and ValueError for a login that confluent-kafka does not support.
    """
    from ...client.security.config import security_config
    from ...client.security.librdkafka import librdkafka_config
    from ...client.settings import ADMIN, read_settings
    from ...deploy.cluster import layout
    from ...deploy.cluster.blocking_admin import blocking_admin
    from ...deploy.cluster.local_cluster import Cluster
    from ...deploy.cluster.terminal import say

    with contextlib.ExitStack() as stack:
        cluster = None
        if is_secured:
            if config is not None:
                raise Failure(
                    "--secure starts its own cluster, so give no other cluster.", exit_code=2
                )
            cluster = stack.enter_context(Cluster(3, secure=True))
            config = cluster.client_config()
        elif config is None:
            file = layout.read(data.resolve())
            opened = Cluster.open(data) if file is not None else None
            if opened is not None and any(s.state == "running" for s in opened.status()):
                cluster = opened
            else:
                say("no cluster runs here, so a cluster of 3 nodes is started for the measurement")
                cluster = stack.enter_context(Cluster(3))
            config = cluster.client_config()
        settings = read_settings(ADMIN, config, {})
        login = librdkafka_config(security_config(settings))
        admin = stack.enter_context(blocking_admin(config, timeout_ms=20_000, say=say))
        target = BenchTarget(",".join(settings.bootstrap_servers), admin, cluster, login)
        stack.callback(target.drop_topics)
        yield target
