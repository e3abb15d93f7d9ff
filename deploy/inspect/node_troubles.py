"""Problems that a node reports, such as links that were cut or slowed, and its disk."""

from typing import TYPE_CHECKING, Any

from ..cluster import link_faults
from ..cluster.failure import Failure

if TYPE_CHECKING:
    from ..cluster.local_cluster import Cluster


def metrics_of(cluster: "Cluster", node_id: int) -> dict[str, Any]:
    """Return a node's metrics, empty without an answer."""
    try:
        return cluster.ask_node(node_id, {"op": "metrics"})
    except Failure:
        return {}


def link_troubles(cluster: "Cluster", node_id: int) -> str:
    """Return the faults on a node's links as text, empty without faults or an answer."""
    try:
        faults = link_faults.faults_of(cluster, node_id)
    except Failure:
        return ""
    return link_faults.in_words(faults, len(cluster.node_ids) - 1)


def disk_trouble(cluster: "Cluster", node_id: int) -> str:
    """Return why a node's disk refuses writes, empty if writes work, or without an answer."""
    return metrics_of(cluster, node_id).get("disk") or ""
