"""The audit of a live topic of any Kafka-compatible cluster, which reads the topic twice.

Our own client reads whole batches, and only the state of the judge (partition_audit.py) is kept.
The ends are taken first for the read_committed pass, and again for the second pass. Everything in
the first pass is therefore decided in the second, even while producers continue.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ....client.admin import EARLIEST, LATEST, Admin
from ....client.consumer import Consumer
from ....client.view_source import view_of
from ....deploy.cluster.failure import Failure
from ....deploy.cluster.silence import tell_silence
from ..analysis.findings import Finding, merged
from .partition_audit import PartitionAudit
from .reading import POLL_MS, PROGRESS_TIMEOUT_S, Key, is_compacted, read_to


class TopicAudit(NamedTuple):
    """The result of an audit: the partitions that were read, and the findings."""

    topic: str
    partitions: tuple[PartitionAudit, ...]
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def is_clean(self) -> bool:
        return not any(finding.is_violation for finding in self.findings)


async def audit_topic(
    source: str | Mapping[str, Any], topic: str, say: Callable[[str], None] = lambda _: None
) -> TopicAudit:
    """Read a topic twice, check it, and return the result.

    Raises Failure if the topic cannot be read to its end.
    """
    started = time.monotonic()
    view = view_of(source)
    try:
        admin = Admin(view)
        tell_silence(admin, say)
        keys = [(p.topic, p.partition) for p in await admin.describe_topics([topic])]
        cleaned = await is_compacted(admin, topic)
        starts = await admin.list_offsets(dict.fromkeys(keys, EARLIEST))
        stable = await admin.list_offsets(dict.fromkeys(keys, LATEST), read_committed=True)
        audits = {key: PartitionAudit(f"{key[0]}/{key[1]}", starts[key], cleaned) for key in keys}

        async def read(ends: Mapping[Key, int], isolation: str) -> None:
            async def poll(consumer: Consumer) -> None:
                for batch in await consumer.poll_batches(POLL_MS):
                    audit = audits[(batch.topic, batch.partition)]
                    if batch.header.base_offset >= ends[(batch.topic, batch.partition)]:
                        continue
                    if isolation == "read_committed":
                        audit.committed_batch(batch.header, is_aborted=batch.is_aborted)
                    else:
                        audit.batch(batch.header, batch.data)

            if silent := await read_to(view, starts, ends, poll, isolation=isolation):
                names = ", ".join(f"{topic}/{partition}" for topic, partition in silent)
                raise Failure(f"No batch of {names} arrived for {PROGRESS_TIMEOUT_S:.0f} s.")

        say(f"reading {topic} with read_committed, {len(keys)} partitions")
        await read(stable, "read_committed")
        say(f"reading all batches of {topic}")
        await read(await admin.list_offsets(dict.fromkeys(keys, LATEST)), "read_uncommitted")
    finally:
        await view.close()
    findings = merged(found for audit in audits.values() for found in audit.findings())
    seconds = time.monotonic() - started
    return TopicAudit(topic, tuple(audits.values()), findings, seconds)
