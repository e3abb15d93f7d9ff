"""Facts of a cluster on this machine alone: processes, event loops, broken links; a shell.

Asks the operating system and the admin sockets of the nodes, in a thread of the caller.
"""

import time
from pathlib import Path
from typing import Any

from ..deploy.cluster.failure import Failure
from ..deploy.cluster.local_cluster import Cluster
from ..deploy.inspect.doctor import examine
from ..deploy.inspect.node_troubles import link_troubles, metrics_of
from .facts import ObservedNode, Trouble

# What the page shows by itself, and fresher.
LEFT_OUT = ("cluster", "answers", "controller", "without leader", "not fully in sync")


def node_facts(cluster: Cluster) -> dict[str, Any]:
    """Return what is known of each node now."""
    found: dict[int, ObservedNode] = {}
    for status in cluster.status():
        is_running = status.state == "running"
        told = metrics_of(cluster, status.node_id) if is_running else {}
        found[status.node_id] = ObservedNode(
            node_id=status.node_id,
            state=status.state,
            pid=status.pid,
            rss_bytes=status.rss_bytes,
            cpu_s=status.cpu_s,
            up_s=time.time() - status.started_s if status.started_s else None,
            faults=link_troubles(cluster, status.node_id) if is_running else "",
            loop=told.get("loop"),
            disk=told.get("disk") or "",
            traffic=told.get("traffic") or {},
        )
    return {"nodes": found}


def doctor_checks(data: Path) -> dict[str, Any]:
    """Return what `oncelog doctor` finds of this machine and cluster."""
    try:
        found = examine(data)
    except Failure as problem:
        return {"checks": (Trouble("doctor", "bad", str(problem)),)}
    return {
        "checks": tuple(
            Trouble(each.check, each.state, each.found, each.advice)
            for each in found
            if each.check not in LEFT_OUT and "not installed" not in each.found
        )
    }
