"""A watch of a local cluster, by the probe and the nodes' own logs.

The watch reports late answers, live brokers that the controller fenced (its log names each
FenceBroker command), and the findings of the watchdogs of their event loops.
"""

import re
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .loop_stalls import loop_metrics
from .probe import Probe, ProbeResult, targets_of

if TYPE_CHECKING:
    from ..cluster.local_cluster import Cluster

POLL_S = 0.002
STALLED = re.compile(r"the event loop was kept for .*")
FENCED = re.compile(r"FenceBroker\(node_id=(\d+)[^)]*\) ended: done")


@dataclass(frozen=True, slots=True)
class WatchResult:
    """The observations of each node, by its id.

    fences: how often a live node was fenced. stalls: the findings of its event loop's watchdog.
    loops: the counters of its watchdog, None if the node did not answer.
    """

    probe: ProbeResult
    fences: dict[int, int]
    stalls: dict[int, list[str]]
    loops: dict[int, Any]


class ClusterWatch:
    """A watch of a running cluster. `stop` ends the watch and returns its result."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._probe = Probe(targets_of(cluster))
        self._log_bytes: dict[int, int] = {}
        self._away: set[int] = set()
        self._fences: Counter[int] = Counter()
        self._stalls: defaultdict[int, list[str]] = defaultdict(list)

    def __enter__(self) -> "ClusterWatch":
        for node_id in self._cluster.node_ids:
            self._log_bytes[node_id] = self._cluster.node(node_id).log.stat().st_size
        self._probe.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._probe.close()

    def kill(self, node_id: int) -> None:
        """Send SIGKILL to a node.

        Until the node serves again, its silence and fencing are not findings.
        """
        self._read_logs()
        self._away.add(node_id)
        self._probe.leave(node_id)
        self._cluster.kill(node_id)

    def start(self, *node_ids: int) -> None:
        """Start killed nodes again, and return when all of them serve.

        The probe begins with a node as soon as its port is open.
        """
        with ThreadPoolExecutor(1) as executor:
            starting = executor.submit(self._cluster.start_all, node_ids)
            for node_id in node_ids:
                while (process := self._cluster.node(node_id).find()) is None:
                    if starting.done():
                        break
                    time.sleep(POLL_S)
                else:
                    self._probe.begin(node_id, process.pid)
            starting.result()
        self._read_logs()
        self._away.difference_update(node_ids)

    def stop(self) -> WatchResult:
        probe = self._probe.stop()
        self._read_logs()
        loops = {node_id: loop_metrics(self._cluster, node_id) for node_id in self._log_bytes}
        return WatchResult(probe, dict(self._fences), dict(self._stalls), loops)

    def _read_logs(self) -> None:
        for node_id, position in self._log_bytes.items():
            with self._cluster.node(node_id).log.open("rb") as file:
                file.seek(position)
                text = file.read()
            whole = text.rfind(b"\n") + 1
            self._log_bytes[node_id] = position + whole
            lines = text[:whole].decode(errors="replace")
            self._stalls[node_id] += STALLED.findall(lines)
            for fenced in FENCED.findall(lines):
                if int(fenced) not in self._away:
                    self._fences[int(fenced)] += 1
