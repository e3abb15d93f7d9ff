"""The target assignment of a consumer group, which an assignor computes.

A target belongs to a group epoch, and is computed at most once in
`group.consumer.assignment.interval.ms`. The target of a small group is computed within a heartbeat,
the target of a large group in steps, from an immutable snapshot. If the group has changed before
the last step, the result is dropped.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from ....runtime.steps import StepCounter, Steps
from ..assignors.catalogue import ASSIGNORS, DEFAULT_ASSIGNOR
from ..assignors.spec import AssignableMember, AssignmentSpec, PartitionsByTopic
from .consumer_group import ConsumerGroup, ConsumerRecord
from .known_topics import SubscribedTopic, Topics
from .records import (
    ConsumerMember,
    ResolvedPattern,
    TargetAssignment,
    TargetAssignmentKey,
    TargetEpoch,
    TargetEpochKey,
)
from .subscriptions import topic_ids

ASSIGNED_AT_ONCE = 400  # the limit of members and partitions
MEMBERS_A_STEP = 100


def is_due(group: ConsumerGroup, epoch: int, now_ms: int, interval_ms: int) -> bool:
    """Return whether a target assignment for this group epoch must be computed now."""
    made_ms = group.target.timestamp_ms
    if epoch <= group.target.epoch:
        return False
    return not made_ms or not 0 <= now_ms - made_ms < interval_ms


def is_small(member_count: int, names: Iterable[str], topics: Topics) -> bool:
    """Return whether a group is small enough to compute its assignment within a heartbeat."""
    left = ASSIGNED_AT_ONCE - member_count
    for name in names:
        topic = topics.get(name)
        left -= 1 + (0 if topic is None else len(topic.partitions))
        if left < 0:
            return False
    return left >= 0


def preferred_assignor(members: Iterable[ConsumerMember], default: str = DEFAULT_ASSIGNOR) -> str:
    """Return the assignor that most members prefer, or the default without preferences.

    In case of a tie uniform is chosen, as in Kafka 4.4.
    """
    asked = (each.server_assignor for each in members)
    votes = Counter(name for name in asked if name is not None and name in ASSIGNORS)
    return max(votes, key=lambda name: (votes[name], name), default=default)


def making_target(
    group_id: str,
    epoch: int,
    members: Mapping[str, ConsumerMember],
    targets: Mapping[str, PartitionsByTopic],
    patterns: Mapping[str, ResolvedPattern],
    topics: Topics,
    now_ms: int,
    default_assignor: str = DEFAULT_ASSIGNOR,
) -> Steps[list[ConsumerRecord]]:
    """Return the records of a target assignment, with only the targets that have changed.

    The mappings must not change meanwhile.
    """
    counter = StepCounter(MEMBERS_A_STEP)
    subscribed: dict[tuple[tuple[str, ...], str | None], frozenset[bytes]] = {}
    known: dict[bytes, SubscribedTopic] = {}
    assignable: dict[str, AssignableMember] = {}
    for member_id, member in members.items():
        subscription = member.topic_names, member.topic_pattern
        ids = subscribed.get(subscription)
        if ids is None:
            resolved = patterns.get(member.topic_pattern or "")
            names = (*member.topic_names, *(() if resolved is None else resolved.topics))
            ids = subscribed[subscription] = topic_ids(names, topics)
            known.update((topics[each].topic_id, topics[each]) for each in names if each in topics)
            yield
        assignable[member_id] = AssignableMember(
            topic_ids=ids, instance_id=member.instance_id, target=targets.get(member_id, {})
        )
        if counter.ends_step():
            yield
    spec = AssignmentSpec(
        members=assignable,
        partition_counts={topic_id: len(topic.partitions) for topic_id, topic in known.items()},
    )
    assigned = yield from ASSIGNORS[preferred_assignor(members.values(), default_assignor)](spec)
    records: list[ConsumerRecord] = []
    for member_id, partitions in assigned.items():
        if targets.get(member_id) != partitions:
            key = TargetAssignmentKey(group_id, member_id)
            records.append((key, TargetAssignment(partitions)))
        if counter.ends_step():
            yield
    records.append((TargetEpochKey(group_id), TargetEpoch(epoch, now_ms)))
    return records


def making_target_of(
    group: ConsumerGroup, topics: Topics, now_ms: int, default_assignor: str = DEFAULT_ASSIGNOR
) -> Steps[list[ConsumerRecord]]:
    """Return the records of the target assignment for the group's current epoch."""
    return making_target(
        group.group_id,
        group.epoch,
        dict(group.members),
        dict(group.targets),
        dict(group.patterns),
        dict(topics),
        now_ms,
        default_assignor,
    )
