"""The faults that the page injects in a cluster on this machine, each with a proof of its effect.

They are the faults of the command line (`oncelog kill`, `pause`, `partition`, `slow`, `heal`). The
calls block until the effect is seen, so they run in a thread.
"""

import time
from collections.abc import Callable

import psutil

from ...deploy.cluster.failure import Failure
from ...deploy.cluster.local_cluster import Cluster
from ...deploy.cluster.targets import SYNTAX

SLOW_MS = 200


def do_fault(cluster: Cluster, kind: str, target: str) -> str:
    """Inject a fault, and return a sentence that proves its effect.

    Raises Failure for a wrong kind or target, or if the fault failed.
    """
    if kind == "heal":
        cluster.heal()
        return "All nodes run, and all links work."
    act = KINDS.get(kind)
    if act is None:
        raise Failure(f"There is no fault of this kind. Kinds are {', '.join(KINDS)} and heal.")
    if not target:
        raise Failure(f"Name a target: {SYNTAX}.")
    try:
        return act(cluster, target)
    except (psutil.Error, OSError) as problem:  # it ended meanwhile, or the disk is full
        raise Failure(f"{kind} {target}: {problem}") from problem


def _kill(cluster: Cluster, target: str) -> str:
    node_id = cluster.resolve(target, states=("running", "paused"))
    pid = cluster.node(node_id).kill()
    return f"Node {node_id} was killed: its pid {pid} is gone, and its port refuses."


def _stop(cluster: Cluster, target: str) -> str:
    node_id = cluster.stop(target)
    return f"Node {node_id} has ended by itself."


def _start(cluster: Cluster, target: str) -> str:
    began_s = time.monotonic()
    node_id = cluster.start(target)
    return f"Node {node_id} serves again, after {time.monotonic() - began_s:.1f} s."


def _pause(cluster: Cluster, target: str) -> str:
    return f"Node {cluster.pause(target)} is paused: its process is in state T."


def _resume(cluster: Cluster, target: str) -> str:
    return f"Node {cluster.resume(target)} continues. Its process is no longer in state T."


def _cut(cluster: Cluster, target: str) -> str:
    node_id = cluster.resolve(target)
    others = _others(cluster, node_id)
    cluster.partition([node_id], others)
    words = ", ".join(map(str, others))
    return f"Node {node_id} is cut off from node {words}; clients reach all of them."


def _slow(cluster: Cluster, target: str) -> str:
    node_id = cluster.resolve(target)
    _others(cluster, node_id)
    cluster.slow(node_id, SLOW_MS)
    return f"Node {node_id} sends to the other nodes {SLOW_MS} ms late."


def _others(cluster: Cluster, node_id: int) -> list[int]:
    found = [each for each in cluster.node_ids if each != node_id]
    if not found:
        raise Failure("A cluster of one node has no links.")
    return found


KINDS: dict[str, Callable[[Cluster, str], str]] = {
    "kill": _kill,
    "stop": _stop,
    "start": _start,
    "pause": _pause,
    "resume": _resume,
    "cut": _cut,
    "slow": _slow,
}
