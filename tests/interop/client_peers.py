"""The clusters for tests of oncelog's client, one of oncelog and one of Apache Kafka."""

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oncelog.client import Admin, Consumer, ConsumerRecord
from oncelog.client.cluster_view import METADATA, read_metadata
from oncelog.deploy.cluster.local_cluster import Cluster

from .kafka_peer import KafkaPeer

OURS, KAFKA = "oncelog", "kafka"
QUICK = {"request_timeout_ms": 5_000, "retry_backoff_max_ms": 200}
TIMEOUT_S = 30.0
PREPARES = {
    "unstable.api.versions.enable": "true",
    "transaction.two.phase.commit.enable": "true",
}
# Kinds of Apache Kafka: 4.4 with default settings, with transactions V1, without KIP-890's guard.
KAFKA_V1, KAFKA_3 = "kafka-v1", "kafka-3.5"
KAFKAS: dict[str, dict[str, Any]] = {
    KAFKA: {},
    KAFKA_V1: {"format_options": ("--feature", "transaction.version=1")},
    KAFKA_3: {"version": "3.5.2"},
}
# Members of consumer groups send heartbeats, and changes are noticed, within parts of a second.
QUICK_GROUPS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.assignment.interval.ms": "0",
}
SCAN = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


@contextmanager
def running(name: str, folder: Path) -> Iterator[str]:
    """Run three nodes of oncelog or one of Apache Kafka, and yield the bootstrap line."""
    if name == OURS:
        with Cluster(nodes=3, config=SCAN | QUICK_GROUPS) as cluster:
            yield cluster.bootstrap
    else:
        with KafkaPeer(folder, settings=PREPARES | SCAN | QUICK_GROUPS) as peer:
            yield peer.bootstrap


async def new_topic(bootstrap: str, partitions: int = 3, **configs: str) -> str:
    """Create a topic, wait until every broker knows its leaders, and return the name."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    async with Admin(bootstrap) as admin:
        await admin.create_topic(name, partitions=partitions, replication_factor=-1, configs=dotted)
        async with asyncio.timeout(TIMEOUT_S):
            while await _least_led(admin, name) < partitions:
                await asyncio.sleep(0.02)
    return name


async def _least_led(admin: Admin, topic: str) -> int:
    """Return the lowest number of partitions with a known leader that any broker reports."""
    answers = await admin.view.ask_all(METADATA, {"topics": [{"name": topic}]})
    snapshots = [read_metadata(answer) for _, answer in answers]
    return min(sum(p.leader >= 0 for p in s.partitions_of(topic)) for s in snapshots)


async def read_to_end(
    bootstrap: str, topic: str, *, committed: bool = True, timeout_s: float = TIMEOUT_S
) -> list[ConsumerRecord]:
    """Read all committed records, or all records, to the end offset of each partition.

    With `committed` no transaction may be open. Otherwise TimeoutError is raised.
    """
    isolation = "read_committed" if committed else "read_uncommitted"
    rows: list[ConsumerRecord] = []
    async with Admin(bootstrap) as admin, asyncio.timeout(timeout_s):
        places = [(topic, p.partition) for p in await admin.describe_topics([topic])]
        async with Consumer(
            bootstrap, isolation_level=isolation, auto_offset_reset="none", **QUICK
        ) as consumer:
            consumer.assign(dict.fromkeys(places, 0))
            ends = await admin.list_offsets(dict.fromkeys(places, -1))
            while any(consumer.position(*place) < ends[place] for place in places):
                rows += await consumer.poll(200)
    return rows


async def values(bootstrap: str, topic: str, *, committed: bool = True) -> list[bytes | None]:
    rows = await read_to_end(bootstrap, topic, committed=committed)
    return sorted((row.value for row in rows), key=lambda value: value or b"")
