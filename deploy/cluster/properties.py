"""server.properties, the settings that `up` writes for a node, in Kafka's format and names.

There are two profiles, which set the same keys. `local` is for watching a cluster, with fail-over
in a second, and few internal partitions. `kafka` has Kafka's defaults. Settings of --config
override both.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .layout import ClusterFile, NodeEntry
from .private import write_private
from .secured.files import node_settings

if TYPE_CHECKING:
    from .node_process import NodeProcess

PROFILES: dict[str, dict[str, str]] = {
    "local": {
        "broker.session.timeout.ms": "1500",
        "broker.heartbeat.interval.ms": "300",
        "replica.lag.time.max.ms": "3000",
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
    },
    "kafka": {
        "broker.session.timeout.ms": "9000",
        "broker.heartbeat.interval.ms": "2000",
        "replica.lag.time.max.ms": "30000",
        "offsets.topic.num.partitions": "50",
        "transaction.state.log.num.partitions": "50",
        "group.initial.rebalance.delay.ms": "3000",
    },
}

# After an advance, work may have to wait for a busy group or a late replica. It is retried soon
# instead of after ten real minutes.
CLOCKS: dict[str, dict[str, str]] = {
    "system": {"oncelog.clock": "system"},
    "controlled": {
        "oncelog.clock": "controlled",
        "log.retention.check.interval.ms": "1000",
        "log.cleaner.backoff.ms": "1000",
        "offsets.retention.check.interval.ms": "1000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
        "producer.id.expiration.check.interval.ms": "1000",
    },
}


def node_properties(entry: NodeEntry, cluster: ClusterFile, directory: Path) -> dict[str, str]:
    """Return all settings of one node. The cluster's settings override those of the node."""
    listener = f"PLAINTEXT://{entry.host}:{entry.port}"
    own = {
        "node.id": str(entry.node_id),
        "cluster.id": cluster.cluster_id,
        "listeners": listener,
        "advertised.listeners": listener,
        "log.dirs": str(directory),
        "oncelog.voters": ",".join(map(str, cluster.node_ids)),
        "oncelog.peer.directory": cluster.peer_directory,
        # Kafka's default is false, but dual writes and the Spark sink need it.
        "transaction.two.phase.commit.enable": "true",
    }
    if entry.metrics_port:
        own["oncelog.metrics.port"] = str(entry.metrics_port)
    if cluster.is_secured:
        own |= node_settings(directory.parent, entry.host, entry.port)
    return own | cluster.settings


def write_properties(node: "NodeProcess", cluster: ClusterFile) -> None:
    """Write the server.properties of a node, which may contain passwords."""
    values = node_properties(node.entry, cluster, node.directory)
    write_private(node.properties, render(values))


def render(properties: Mapping[str, str]) -> str:
    """Return the file's text with sorted keys, so that two files can be compared."""
    return "".join(f"{key}={_escaped(properties[key])}\n" for key in sorted(properties))


def _escaped(value: str) -> str:
    if "\n" in value or "\r" in value:
        raise ValueError("a configuration value cannot span lines")
    return value.replace("\\", "\\\\")
