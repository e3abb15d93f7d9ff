"""Which replicas are missing from their partitions."""

import contextlib
from typing import Any


async def missing_replicas(admin: Any, topic: str | None, size: int | None) -> list[str]:
    """The partitions without a leader, or without `size` (else: all) replicas in sync."""
    from ...wire.errors import UnknownTopicOrPartition

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
