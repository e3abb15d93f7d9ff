"""Describes many listed groups at once, by their coordinators.

There is one request for each coordinator and type of group, and one for offsets, up to
GROUPS_A_REQUEST groups each. A group that has moved or was deleted meanwhile is left out, because
callers list and describe the groups again and again.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ...wire.identifiers import TopicPartition
from ..committed_offsets import BATCHED_FROM, OFFSET_FETCH, fetch_committed
from ..connection import BrokerConnection
from .descriptions import (
    CONSUMER,
    CONSUMER_GROUP_DESCRIBE,
    DEAD,
    DESCRIBE_GROUPS,
    GroupDescription,
    GroupListing,
    classic_group,
    consumer_group,
)

GROUPS_A_REQUEST = 500


async def described_groups(
    coordinator: BrokerConnection, node_id: int, listed: Sequence[GroupListing]
) -> dict[str, GroupDescription]:
    """Describe the listed groups of one coordinator.

    A group of an unknown type has only its state.
    """
    found: dict[str, GroupDescription] = {}
    of_consumers = [g.group_id for g in listed if g.type == CONSUMER]
    classic = [g.group_id for g in listed if g.type in ("", "classic")]
    for ids in _in_parts(of_consumers if CONSUMER_GROUP_DESCRIBE in coordinator.versions else ()):
        answer = await coordinator.call(CONSUMER_GROUP_DESCRIBE, {"group_ids": ids})
        found |= {g.group_id: consumer_group(g, node_id) for g in answer.groups if not g.error_code}
    for ids in _in_parts(classic):
        answer = await coordinator.call(DESCRIBE_GROUPS, {"groups": ids})
        for group in answer.groups:
            if not group.error_code and group.group_state != DEAD:
                found[group.group_id] = classic_group(group, node_id)
    for each in listed:
        if each.type not in ("", "classic", CONSUMER):
            found[each.group_id] = GroupDescription(
                each.group_id, each.state, each.protocol_type, "", node_id, type=each.type
            )
    return found


async def committed_of_groups(
    coordinator: BrokerConnection, group_ids: Sequence[str]
) -> dict[str, dict[TopicPartition, int]]:
    """Return committed offsets of one coordinator's groups, without waiting for transactions."""
    found: dict[str, dict[TopicPartition, int]] = {}
    if coordinator.version_for(OFFSET_FETCH) < BATCHED_FROM:
        for group_id in group_ids:
            code, offsets = await fetch_committed(coordinator, group_id, None, stable=False)
            if not code:
                found[group_id] = {key: each.offset for key, each in offsets.items()}
        return found
    for ids in _in_parts(group_ids):
        groups = [{"group_id": group_id, "topics": None} for group_id in ids]
        answer = await coordinator.call(OFFSET_FETCH, {"groups": groups, "require_stable": False})
        found |= {g.group_id: _offsets(g) for g in answer.groups if not g.error_code}
    return found


def _offsets(group: Any) -> dict[TopicPartition, int]:
    return {
        (str(topic.name), p.partition_index): p.committed_offset
        for topic in group.topics
        for p in topic.partitions
        if p.committed_offset >= 0 and not p.error_code
    }


def _in_parts(ids: Iterable[str]) -> Iterable[list[str]]:
    listed = list(ids)
    starts = range(0, len(listed), GROUPS_A_REQUEST)
    return [listed[start : start + GROUPS_A_REQUEST] for start in starts]
