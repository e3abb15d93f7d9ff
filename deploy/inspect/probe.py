"""The probe for late answers, a separate process that asks all nodes every few ms.

    with Probe(targets_of(cluster)) as probe:
        ...
    for node in probe.stop().nodes:
        print(node.node, node.max_ms)

probe_process.py has the rules of the measurement. Any Kafka-compatible cluster can be watched.
Memory, CPU time and waits for a processor are measured only for processes on this machine.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ...wire.security.secret import Secret
from ..cluster.failure import Failure
from ..cluster.terminal import say

if TYPE_CHECKING:
    from ..cluster.local_cluster import Cluster

INTERVAL_MS = 5.0
LIMIT_MS = 200.0  # the longest acceptable wait for an answer
MODULE = "oncelog.deploy.inspect.probe_process"


@dataclass(frozen=True, slots=True)
class Target:
    """A node to ask, with its pid if it is a process of this machine."""

    node: int
    host: str
    port: int
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class NodeLateness:
    """How late one node answered, counted from the time at which each request was due.

    max_less_wait_ms: the latest answer, without the time for which the node or the probe waited for
    a processor. silent_ms: for how long the node had not answered at the end. stalls: the longest
    stalls.
    """

    node: int
    answers: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    max_less_wait_ms: float
    silent_ms: float
    lost_connections: int
    waited_ms: float
    cpu_s: float
    rss_max_bytes: int
    stalls: list[dict[str, float]]


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The results of all nodes. `waited_ms` is how long the probe waited for a processor."""

    seconds: float
    waited_ms: float
    nodes: list[NodeLateness]

    @property
    def max_ms(self) -> float:
        return max(node.max_ms for node in self.nodes)

    @property
    def max_less_wait_ms(self) -> float:
        """Return the latest answer of any node in ms, without the time waited for a processor."""
        return max(node.max_less_wait_ms for node in self.nodes)

    def rows(self) -> list[dict[str, Any]]:
        """Return a table row for each node."""
        return [
            {
                "node": node.node,
                "answers": node.answers,
                "p50_ms": round(node.p50_ms, 2),
                "p99_ms": round(node.p99_ms, 1),
                "max_ms": round(node.max_ms, 1),
                "less_wait_ms": round(node.max_less_wait_ms, 1),
                "silent_ms": round(node.silent_ms, 1),
                "lost": node.lost_connections,
                # Unknown for a broker that is not ours, or on another machine.
                "waited_ms": round(node.waited_ms) if node.rss_max_bytes else None,
                "cpu_s": round(node.cpu_s, 2) if node.rss_max_bytes else None,
                "rss_mb": round(node.rss_max_bytes / 1e6) or None,
            }
            for node in self.nodes
        ]


class Probe:
    """The handle by which a program starts and stops the probe's process."""

    def __init__(
        self,
        targets: Iterable[Target],
        *,
        interval_ms: float = INTERVAL_MS,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._asked: dict[str, Any] = {
            "interval_ms": interval_ms,
            "nodes": [asdict(target) for target in targets],
        }
        if config is not None:  # through a pipe, which other users cannot read
            self._asked["config"] = {
                name: value.reveal() if isinstance(value, Secret) else value
                for name, value in config.items()
            }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Probe":
        self.start()
        return self

    def close(self, *_: object) -> None:
        """Kill the process, without a result."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    __exit__ = close

    def start(self) -> None:
        """Start the process, and return when every node has answered.

        Raises Failure if the process ends instead.
        """
        command = [sys.executable, "-P", "-m", MODULE]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._send(self._asked)
        assert self._process.stdout is not None
        words = self._process.stdout.readline().decode().strip()
        if words != "watching":
            self.close()
            raise Failure(
                f"The probe ended before all nodes had answered it: {words or 'no word'}."
            )

    def leave(self, node_id: int) -> None:
        """Stop sending requests to a node, before the node is killed."""
        self._send({"node": node_id, "pid": None})

    def begin(self, node_id: int, pid: int) -> None:
        """Send requests to a restarted node again, once its port accepts a connection."""
        self._send({"node": node_id, "pid": pid})

    def stop(self) -> ProbeResult:
        if self._process is None:
            raise Failure("The probe does not run.")
        process, self._process = self._process, None
        output, _ = process.communicate()
        try:
            found = json.loads(output)
        except ValueError:
            raise Failure(f"The probe ended with exit code {process.returncode}.") from None
        nodes = [NodeLateness(**node) for node in found.pop("nodes")]
        return ProbeResult(**found, nodes=nodes)

    def _send(self, words: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(words).encode() + b"\n")
        self._process.stdin.flush()


def targets_of(cluster: "Cluster") -> list[Target]:
    """Return the running nodes of a local cluster."""
    pids = {status.node_id: status.pid for status in cluster.status() if status.state == "running"}
    return [
        Target(entry.node_id, entry.host, entry.port, pids[entry.node_id])
        for entry in cluster.file.nodes
        if entry.node_id in pids
    ]


def targets_behind(config: Mapping[str, Any]) -> list[Target]:
    from ..cluster.blocking_admin import blocking_admin

    with blocking_admin(config, timeout_ms=5_000, say=say) as admin:
        brokers = admin.describe_cluster().brokers
    return [Target(b.node_id, b.host, b.port) for b in brokers if not b.is_fenced]
