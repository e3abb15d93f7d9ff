"""The findings of the nodes' watchdogs about callbacks that blocked the event loop for too long.

The findings of an ended process are in node.log. A running process is asked through its admin
socket. node/loop_watchdog.py produces the findings.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...node.loop_watchdog import FINDING_S, STALL_LINE
from .node_troubles import metrics_of

if TYPE_CHECKING:
    from ..cluster.local_cluster import Cluster


def stalls_in_log(
    log: Path, *, from_byte: int = 0, above_ms: float = FINDING_S * 1000
) -> list[str]:
    """Return the watchdog's lines in a node.log about stalls longer than `above_ms`."""
    try:
        with log.open("rb") as file:
            file.seek(from_byte)
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    matches = ((line, STALL_LINE.search(line)) for line in lines)
    return [line[m.start() :] for line, m in matches if m is not None and int(m[1]) > above_ms]


def loop_metrics(cluster: "Cluster", node_id: int) -> dict[str, Any] | None:
    """Return `LoopWatchdog.metrics` of a running node, or None without an answer."""
    return metrics_of(cluster, node_id).get("loop")
