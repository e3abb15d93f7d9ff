"""A node's reported troubles: links that were cut or slowed on purpose, its disk."""

from typing import TYPE_CHECKING, Any

from ..cluster import link_faults
from ..cluster.failure import Failure

if TYPE_CHECKING:
    from ..cluster.local_cluster import Cluster


def metrics_of(cluster: "Cluster", node_id: int) -> dict[str, Any]:
    """Return a node's metrics; empty where it does not answer."""
    try:
        return cluster.ask_node(node_id, {"op": "metrics"})
    except Failure:
        return {}


def link_troubles(cluster: "Cluster", node_id: int) -> str:
    """Return the faults on its links in words; empty where there are none, or it is silent."""
    try:
        faults = link_faults.faults_of(cluster, node_id)
    except Failure:
        return ""
    return link_faults.in_words(faults, len(cluster.node_ids) - 1)


def disk_trouble(cluster: "Cluster", node_id: int) -> str:
    """Return why its disk takes no writes; empty where it does, or the node is silent."""
    return metrics_of(cluster, node_id).get("disk") or ""
