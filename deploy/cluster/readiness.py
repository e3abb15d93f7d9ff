"""The verification that nodes serve and that replicas are in sync.

A node is ready under four conditions. The process that we started is alive and owns the listening
port. The listener answers with this cluster's id. The answer lists this node with this address. The
node is not fenced. An open port alone proves nothing, since another process may hold the port.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...client.admin import DESCRIBE_CLUSTER
from ...client.cluster_view import METADATA, read_metadata
from ...client.connection import BrokerConnection
from ...wire.errors import KafkaError, UnknownTopicOrPartition
from .node_process import NodeNotReady, NodeProcess
from .secured.files import admin_values

if TYPE_CHECKING:
    from ...client.security.session import Security

POLL_S = 0.01
ANSWER_TIMEOUT_MS = 2_000


async def wait_until_ready(
    nodes: Iterable[NodeProcess],
    cluster_id: str,
    timeout_s: float,
    on_ready: Callable[[int], None],
) -> None:
    """Wait until all nodes are ready, and call `on_ready` with the id of each when it is ready.

    Raises Failure that names a node that has ended, or is not ready at the timeout.
    """
    deadline = time.monotonic() + timeout_s
    await asyncio.gather(*(_wait_for(node, cluster_id, deadline, on_ready) for node in nodes))


async def missing_replicas(admin: Any, topic: str | None, size: int | None) -> list[str]:
    """Return text for each partition without a leader, or with too few replicas in sync.

    Too few are fewer than `size`, by default fewer than all replicas.
    """
    found: list[Any] = []
    with contextlib.suppress(UnknownTopicOrPartition):  # not known to the broker that answers
        found = await admin.describe_topics(None if topic is None else [topic])
    if topic and not found:
        return [f"{topic} is not known yet"]
    return [
        f"{p.topic}/{p.partition} has {list(p.isr)} of {list(p.replicas)}"
        for p in found
        if p.leader < 0 or len(p.isr) < (size or len(p.replicas))
    ]


async def _wait_for(
    node: NodeProcess, cluster_id: str, deadline: float, on_ready: Callable[[int], None]
) -> None:
    while True:
        process = node.find()
        if process is None:
            code = node.exit_code()
            told = f" with exit code {code}" if code is not None else ""
            lines = map(str.strip, reversed(node.log_tail().splitlines()))
            last = next(filter(None, lines), "(none)").removesuffix(".")
            raise NodeNotReady(
                f"Node {node.node_id} ended{told} before it served. Its last log lines: {last}.",
                node,
            )
        try:
            missing = await _what_is_missing(node, cluster_id)
        except KafkaError as problem:
            missing = str(problem)
        if not missing and not node.owns_its_port(process.pid):
            missing = f"port {node.entry.port} answers, but it is not pid {process.pid} that does"
        if not missing:
            on_ready(node.node_id)
            return
        if time.monotonic() > deadline:
            missing = missing.removesuffix(".")
            raise NodeNotReady(
                f"Node {node.node_id} (pid {process.pid}) is not ready: {missing}.", node
            )
        await asyncio.sleep(POLL_S)


@cache
def _security(data: Path) -> "Security | None":
    """Return the login of a secured cluster's admin, or None for plain text."""
    if not (values := admin_values(data)):
        return None
    from ...client.security.session import Security
    from ...client.settings import ADMIN, read_settings

    return Security.of(read_settings(ADMIN, {"bootstrap.servers": "unused:1", **values}, {}))


async def _what_is_missing(node: NodeProcess, cluster_id: str) -> str:
    """Ask a node for its metadata. Return "" if the node is ready, else text with the reason."""
    entry = node.entry
    connection = await BrokerConnection.open(
        entry.host,
        entry.port,
        timeout_ms=ANSWER_TIMEOUT_MS,
        security=_security(node.directory.parent),
    )
    try:
        seen = read_metadata(await connection.call(METADATA, {"topics": []}))
        if seen.cluster_id != cluster_id:
            return f"{entry.host}:{entry.port} answers for cluster {seen.cluster_id}"
        broker = seen.brokers.get(node.node_id)
        if broker is None:
            return "it is not among the live brokers yet"
        if (broker.host, broker.port) != (entry.host, entry.port):
            return f"it is registered at {broker.host}:{broker.port}"
        if connection.versions.get(DESCRIBE_CLUSTER, (0, 0))[1] >= 2:
            values = {"endpoint_type": 1, "include_fenced_brokers": True}
            answer = await connection.call(DESCRIBE_CLUSTER, values)
            fenced = {int(b.broker_id) for b in answer.brokers if b.is_fenced}
            if node.node_id in fenced:
                return "it is still fenced"
    finally:
        connection.close()
    return ""
