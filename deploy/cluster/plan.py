"""The plan of `up` from its options, and the check whether a directory fits them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...node.cluster_id import new_cluster_id
from ...wire.errors import KafkaError
from . import layout, ports, properties
from .failure import Failure
from .layout import ClusterFile, NodeEntry

NODE_COUNTS = (1, 3, 4, 5)
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """The options of a cluster. None stands for a default that depends on the number of nodes.

    Raises Failure if the options are invalid.
    """

    nodes: int
    first_id: int = 1
    first_port: int | None = None
    profile: str = "local"
    replication_factor: int | None = None
    min_insync_replicas: int | None = None
    transaction_shards: int | None = None
    clock: str | None = None
    is_secured: bool = False
    has_metrics: bool | None = None
    first_metrics_port: int | None = None
    overrides: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        if self.nodes == 2:
            raise Failure(
                "Two nodes are worse than one: neither has a majority without the other, so "
                "losing either stops all decisions. Take 1 or 3."
            )
        if self.nodes not in NODE_COUNTS:
            raise Failure(f"A cluster has 1, 3, 4 or 5 nodes, not {self.nodes}.")
        if self.profile not in properties.PROFILES:
            have = ", ".join(properties.PROFILES)
            raise Failure(f"There is no profile {self.profile!r}; there are {have}.")
        if self.clock not in (None, *properties.CLOCKS):
            have = ", ".join(properties.CLOCKS)
            raise Failure(f"There is no clock {self.clock!r}; there are {have}.")
        if not 1 <= self._replicas <= self.nodes:
            raise Failure(f"{self._replicas} replicas do not fit on {self.nodes} nodes.")
        if not 1 <= self._min_insync <= self._replicas:
            raise Failure(
                f"min.insync.replicas={self._min_insync} can never be met by {self._replicas} "
                "replicas."
            )

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings of a new cluster's nodes.

        The user's settings override the profile.
        """
        settings = dict(properties.PROFILES[self.profile])
        settings["default.replication.factor"] = str(self._replicas)
        settings["min.insync.replicas"] = str(self._min_insync)
        settings["offsets.topic.replication.factor"] = str(min(3, self.nodes))
        if self.transaction_shards is not None:
            settings["transaction.state.log.num.partitions"] = str(self.transaction_shards)
        return settings | self._asked_for

    def new_file(self) -> ClusterFile:
        entries = self._entries(range(self.first_id, self.first_id + self.nodes))
        entries = self._with_metrics(entries, entries)
        cluster_id = new_cluster_id()
        peers = str(layout.peer_directory_for(cluster_id))
        return ClusterFile(
            cluster_id, peers, self.profile, entries, self.settings, is_secured=self.is_secured
        )

    def reused_file(self, data: Path, known: ClusterFile, running: Sequence[int]) -> ClusterFile:
        """Return `known`, changed by the options for ports, metrics, the clock and --config.

        The other options apply only to a new cluster. Raises Failure when the cluster runs, has
        another number of nodes or a folder of another cluster, or lacks the required security.
        """
        if running:
            which = ", ".join(str(i) for i in running)
            state = "runs in" if known.is_complete else "was left half started in"
            raise Failure(
                f"A cluster {state} {data} (nodes running: {which}). Look at it with "
                "`oncelog ps`, end it with `oncelog down`, or choose another --data."
            )
        if len(known.nodes) != self.nodes:
            raise Failure(
                f"{data} holds a cluster of {len(known.nodes)} nodes, not {self.nodes}; the "
                f"number of voters cannot change. Leave --nodes out to start it as it is, "
                "or choose another --data."
            )
        layout.require_same_cluster(data, known)
        if self.is_secured and not known.is_secured:
            raise Failure(
                f"{data} holds a cluster in plain text, and --secure needs a new cluster. Choose "
                f"another --data."
            )
        nodes = known.nodes if self.first_port is None else self._entries(known.node_ids)
        known.nodes = self._with_metrics(nodes, known.nodes)
        known.settings |= self._asked_for
        return known

    def require_valid(self, file: ClusterFile, data: Path) -> None:
        """Raise Failure when a broker would refuse the settings of --config."""
        if not self.overrides:  # our own settings are right, and the check costs imports
            return
        from ...node.config.broker_config import BrokerConfig

        entry = file.nodes[0]
        directory = layout.node_directory(data, entry.node_id)
        try:
            BrokerConfig.from_properties(properties.node_properties(entry, file, directory))
        except KafkaError as problem:
            words = str(problem).removesuffix(".")
            raise Failure(
                f"--config: {words}. Nothing was started or written.", exit_code=2
            ) from None

    def _entries(self, ids: Sequence[int]) -> list[NodeEntry]:
        first, count = self.first_port, len(ids)
        chosen = ports.free_ports(count) if first is None else range(first, first + count)
        return [NodeEntry(i, HOST, port) for i, port in zip(ids, chosen, strict=True)]

    def _with_metrics(
        self, nodes: Sequence[NodeEntry], known: Sequence[NodeEntry]
    ) -> list[NodeEntry]:
        """Return `nodes` with metrics ports from the options, by default with those in `known`."""
        if self.has_metrics is None:
            metrics_ports = [node.metrics_port for node in known]
        elif not self.has_metrics:
            metrics_ports = [0] * len(nodes)
        else:
            taken, count = {node.port for node in nodes}, len(nodes)
            if self.first_metrics_port is None:
                free = ports.free_ports(2 * count)
                metrics_ports = [port for port in free if port not in taken][:count]
            else:
                metrics_ports = list(
                    range(self.first_metrics_port, self.first_metrics_port + count)
                )
            if both := taken.intersection(metrics_ports):
                raise Failure(f"Port {min(both)} is for Kafka and metrics: choose another one.")
        return [replace(node, metrics_port=p) for node, p in zip(nodes, metrics_ports, strict=True)]

    @property
    def _asked_for(self) -> dict[str, str]:
        """Return the settings of --clock and --config. They also change an existing cluster."""
        return properties.CLOCKS.get(self.clock or "", {}) | dict(self.overrides)

    @property
    def _replicas(self) -> int:
        return self.replication_factor or min(3, self.nodes)

    @property
    def _min_insync(self) -> int:
        return self.min_insync_replicas or (2 if self._replicas >= 3 else 1)
