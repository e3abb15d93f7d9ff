"""The topics that a group's patterns stand for: found in steps, and kept as records.

All patterns of a group are looked at together, at most every 10 s: when there is a new one, when
topics have come, or after 10 minutes (`heartbeats.patterns_are_due`).
"""

from collections.abc import Mapping

from ....runtime.steps import Steps
from .consumer_group import ConsumerGroup, ConsumerRecord
from .known_topics import Topics
from .patterns import resolving_patterns
from .records import GroupEpoch, GroupEpochKey, ResolvedPattern, ResolvedPatternKey
from .subscriptions import metadata_hash


def resolving(group: ConsumerGroup, topics: Topics) -> Steps[dict[str, tuple[str, ...]]]:
    """Return the topics of each pattern that members are subscribed to now."""
    return resolving_patterns(list(group.subscribed_patterns), list(topics))


def resolved(
    group: ConsumerGroup, found: Mapping[str, tuple[str, ...]], topics: Topics, now_ms: int
) -> list[ConsumerRecord]:
    """Return the records of what was found, and of a new epoch if it is other topics than before.

    Patterns that no member is subscribed to any more are left out.
    """
    records: list[ConsumerRecord] = []
    names, is_other = set(group.named), False
    for pattern in group.subscribed_patterns:
        before = group.patterns.get(pattern)
        if pattern not in found:
            names.update(() if before is None else before.topics)
            continue
        names.update(found[pattern])
        is_other |= found[pattern] != (() if before is None else before.topics)
        value = ResolvedPattern(found[pattern], 0, now_ms)
        records.append((ResolvedPatternKey(group.group_id, pattern), value))
    if not records:
        return []
    hashed = metadata_hash(names, topics)
    if is_other or hashed != group.metadata_hash:
        epoch = GroupEpoch(group.epoch + 1, hashed)
        records.append((GroupEpochKey(group.group_id), epoch))
    return records
