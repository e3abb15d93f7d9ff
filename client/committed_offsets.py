"""Requests a group's committed offsets from its coordinator (OffsetFetch), in any version."""

from collections.abc import Iterable
from typing import Any

from ..wire.identifiers import TopicPartition
from .by_topic import entries_by_topic
from .connection import BrokerConnection
from .group_metadata import OffsetAndMetadata

OFFSET_FETCH, BATCHED_FROM = 9, 8


async def fetch_committed(
    coordinator: BrokerConnection,
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    stable: bool,
    member: tuple[str, int] = ("", -1),
) -> tuple[int, dict[TopicPartition, OffsetAndMetadata]]:
    """Return the first error code (0 for none) and the committed offsets of these partitions.

    Partitions without a committed offset are left out. None stands for all partitions. stable: wait
    for the end of open transactions (KIP-447). member: the id and epoch of the asking member of a
    consumer group (KIP-848).
    """
    topics = None if partitions is None else entries_by_topic(partitions, "partition_indexes")
    values: dict[str, Any] = {"group_id": group_id, "topics": topics}
    if coordinator.version_for(OFFSET_FETCH) >= BATCHED_FROM:
        if member[1] >= 0:
            values |= {"member_id": member[0], "member_epoch": member[1]}
        values = {"groups": [values]}
    answer = await coordinator.call(OFFSET_FETCH, {**values, "require_stable": stable})
    (group,) = getattr(answer, "groups", (answer,))
    code = int(getattr(group, "error_code", 0))
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for topic in group.topics:
        for p in topic.partitions:
            code = code or int(p.error_code)
            if p.committed_offset >= 0:
                epoch = getattr(p, "committed_leader_epoch", -1)
                found[topic.name, p.partition_index] = OffsetAndMetadata(
                    p.committed_offset, p.metadata or "", epoch
                )
    return code, found
