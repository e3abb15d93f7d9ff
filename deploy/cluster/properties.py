"""server.properties: what `up` writes for a node, in Kafka's format and with Kafka's names.

Two profiles. `local` is made to be watched: fail-over in a second, few internal partitions. `kafka`
leaves every key at Kafka's own default. Whatever a person gives with --config wins over both.
"""

from collections.abc import Mapping
from pathlib import Path

PROFILES: dict[str, dict[str, str]] = {
    "local": {
        "broker.session.timeout.ms": "1500",
        "broker.heartbeat.interval.ms": "300",
        "replica.lag.time.max.ms": "3000",
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
    },
    "kafka": {},
}


def node_properties(
    *,
    node_id: int,
    address: tuple[str, int],
    cluster_id: str,
    voters: list[int],
    directory: Path,
    peer_directory: Path,
    settings: Mapping[str, str],
) -> dict[str, str]:
    """Everything one node must know; `settings` are the cluster-wide ones and win."""
    listener = f"PLAINTEXT://{address[0]}:{address[1]}"
    own = {
        "node.id": str(node_id),
        "cluster.id": cluster_id,
        "listeners": listener,
        "advertised.listeners": listener,
        "log.dirs": str(directory),
        "oncelog.voters": ",".join(str(v) for v in voters),
        "oncelog.peer.directory": str(peer_directory),
    }
    return own | dict(settings)


def render(properties: Mapping[str, str]) -> str:
    """The file's text; keys sorted, so that two files can be compared by eye."""
    return "".join(f"{key}={_escaped(properties[key])}\n" for key in sorted(properties))


def _escaped(value: str) -> str:
    if "\n" in value or "\r" in value:
        raise ValueError("a configuration value cannot span lines")
    return value.replace("\\", "\\\\")
