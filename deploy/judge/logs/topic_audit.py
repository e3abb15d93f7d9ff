"""Reads a live topic of any Kafka-compatible cluster twice and has it judged (partition_audit.py).

Whole batches are read through our own client; nothing is kept of them but what the judge keeps.
The ends are taken first for the reading under read_committed, then anew for the other one, so that
what the first has seen is decided for the second even while producers go on.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ....client.admin import EARLIEST, LATEST, Admin
from ....client.cluster_view import ClusterView
from ....client.consumer import Consumer
from ....client.fetch.state import RawBatch
from ....client.view_source import view_of
from ...cluster.failure import Failure
from ..analysis.findings import Finding
from .partition_audit import PartitionAudit

POLL_MS = 500
SILENCE_S_MAX = 60.0  # a partition that has no leader for so long is given up
Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class TopicAudit:
    """What was read and what was found."""

    topic: str
    partitions: tuple[PartitionAudit, ...]
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether no promise was broken."""
        return not any(finding.is_violation for finding in self.findings)


async def audit_topic(
    source: str | Mapping[str, Any], topic: str, say: Callable[[str], None] = lambda _: None
) -> TopicAudit:
    """Judge a topic as it stands now. Raises Failure when it cannot be read to its end."""
    started = time.monotonic()
    view = view_of(source)
    try:
        admin = Admin(view)
        keys = [(p.topic, p.partition) for p in await admin.describe_topics([topic])]
        policy = {c.name: c.value for c in await admin.describe_configs(topic)}
        is_compacted = "compact" in (policy.get("cleanup.policy") or "")
        starts = await admin.list_offsets(dict.fromkeys(keys, EARLIEST))
        stable = await admin.list_offsets(dict.fromkeys(keys, LATEST), read_committed=True)
        audits = {
            key: PartitionAudit(f"{key[0]}/{key[1]}", starts[key], is_compacted) for key in keys
        }

        def committed(batch: RawBatch) -> None:
            audit = audits[(batch.topic, batch.partition)]
            audit.committed_batch(batch.header, is_aborted=batch.is_aborted)

        def raw(batch: RawBatch) -> None:
            audits[(batch.topic, batch.partition)].batch(batch.header, batch.data)

        say(f"reading {topic} under read_committed, {len(keys)} partitions")
        await read_to(view, starts, stable, committed, isolation="read_committed")
        ends = await admin.list_offsets(dict.fromkeys(keys, LATEST))
        say(f"reading {topic} as it stands")
        await read_to(view, starts, ends, raw, isolation="read_uncommitted")
    finally:
        await view.close()
    findings: dict[str, Finding] = {}
    for audit in audits.values():
        for one in audit.findings():
            known = findings.get(one.name)
            findings[one.name] = (
                one
                if known is None
                else Finding(one.anomaly, known.count + one.count, known.cases + one.cases)
            )
    seconds = time.monotonic() - started
    return TopicAudit(topic, tuple(audits.values()), tuple(findings.values()), seconds)


async def read_to(
    view: ClusterView,
    starts: Mapping[Key, int],
    ends: Mapping[Key, int],
    take: Callable[[RawBatch], None],
    *,
    isolation: str,
) -> None:
    """Every batch that begins in [start, end) of each partition, in its order."""
    unfinished = {key for key in starts if starts[key] < ends[key]}
    async with Consumer(view, isolation_level=isolation, auto_offset_reset="none") as consumer:
        consumer.assign({key: starts[key] for key in unfinished})
        heard = time.monotonic()
        while unfinished:
            batches = await consumer.poll_batches(POLL_MS)
            for batch in batches:
                if batch.header.base_offset < ends[(batch.topic, batch.partition)]:
                    take(batch)
            if batches:
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENCE_S_MAX:
                names = ", ".join(f"{t}/{p}" for t, p in sorted(unfinished))
                raise Failure(f"Nothing came of {names} for {SILENCE_S_MAX:.0f} s.")
            for key in list(unfinished):
                if consumer.position(*key) >= ends[key]:
                    unfinished.discard(key)
                    consumer.unassign(*key)
