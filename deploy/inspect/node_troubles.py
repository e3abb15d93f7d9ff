"""What a node says is wrong with it now: links that were cut or slowed on purpose, its disk."""

from typing import TYPE_CHECKING

from ..cluster import link_faults
from ..cluster.failure import Failure

if TYPE_CHECKING:
    from ..cluster.local_cluster import Cluster


def link_troubles(cluster: "Cluster", node_id: int) -> str:
    """The faults on its links in words; empty where there are none, or it does not answer."""
    try:
        faults = link_faults.faults_of(cluster, node_id)
    except Failure:
        return ""
    return link_faults.in_words(faults, len(cluster.node_ids) - 1)


def disk_trouble(cluster: "Cluster", node_id: int) -> str:
    """Why its disk takes no writes; empty where it does, or the node does not answer."""
    try:
        return cluster.ask_node(node_id, {"op": "metrics"}).get("disk") or ""
    except Failure:
        return ""


def troubles_of(cluster: "Cluster", node_id: int) -> list[str]:
    """All of them in words."""
    found = link_troubles(cluster, node_id), disk_trouble(cluster, node_id)
    return [words for words in found if words]
