"""The removal of members that leave, leave temporarily, or time out.

A dynamic member that leaves is removed immediately. A static member may leave temporarily (member
epoch -2). It then keeps its partitions until its session expires, so that its next process can
resume them. Each removal begins a new epoch of the group.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from ....wire.errors import ErrorCode, FencedInstanceId, UnknownMemberId
from ..group_messages import LeavingMember
from .consumer_group import (
    LEAVES_FOR_NOW,
    NOTHING_ASSIGNED,
    ConsumerGroup,
    ConsumerRecord,
)
from .heartbeat_messages import ConsumerHeartbeat
from .heartbeats import check_instance
from .known_topics import Topics
from .reconciliation import MemberState
from .records import (
    ConsumerMemberKey,
    CurrentAssignmentKey,
    EpochsByTopic,
    GroupEpoch,
    GroupEpochKey,
    ResolvedPatternKey,
    TargetAssignmentKey,
    TargetEpoch,
    TargetEpochKey,
)
from .subscriptions import metadata_hash


def leave(group: ConsumerGroup, request: ConsumerHeartbeat) -> list[ConsumerRecord] | None:
    """Return the records of a member that leaves temporarily, or None if it leaves permanently.

    Raises UnknownMemberId, FencedInstanceId.
    """
    if request.instance_id is not None:
        check_instance(group, request.member_id, request.instance_id)
        if request.member_epoch == LEAVES_FOR_NOW:
            return [_leaving_for_now(group, request.member_id)]
    group.check_member(request.member_id)
    return None


def _leaving_for_now(group: ConsumerGroup, member_id: str) -> ConsumerRecord:
    """Return the record of a static member that leaves temporarily and keeps its partitions.

    The partitions get epoch 0, so that the member's next process may commit offsets for them.
    """
    now = group.assignments.get(member_id, NOTHING_ASSIGNED)
    assigned: EpochsByTopic = {
        topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in now.assigned.items()
    }
    left = replace(now, member_epoch=LEAVES_FOR_NOW, assigned=assigned, pending_revocation={})
    return CurrentAssignmentKey(group.group_id, member_id), left


def expelled(group: ConsumerGroup, leaving: Sequence[LeavingMember]) -> tuple[list[int], list[str]]:
    """Check a LeaveGroup.

    Return an error code for each member, and the ids of members to remove.
    """
    errors: list[int] = []
    gone: dict[str, None] = {}
    for each in leaving:
        try:
            gone[_member_meant(group, each)] = None
        except (UnknownMemberId, FencedInstanceId) as error:
            errors.append(error.number)
        else:
            errors.append(ErrorCode.NONE)
    return errors, list(gone)


def _member_meant(group: ConsumerGroup, leaving: LeavingMember) -> str:
    """Return the id of a member that is named by its member id, its instance id, or both."""
    instance_id = leaving.group_instance_id
    if instance_id is None:
        group.check_member(leaving.member_id)
        return leaving.member_id
    holder = group.instances.get(instance_id)
    check_instance(group, leaving.member_id or holder or "", instance_id)
    assert holder is not None
    return holder


def removing(
    group: ConsumerGroup, member_ids: Collection[str], topics: Topics
) -> list[ConsumerRecord]:
    """Return the records that remove members and begin a new epoch.

    The target of an empty group has the same epoch as the group, as in Kafka since 4.4.
    """
    records: list[ConsumerRecord] = []
    named, patterns = group.named.copy(), group.subscribed_patterns.copy()
    for member_id in member_ids:
        records += [
            (CurrentAssignmentKey(group.group_id, member_id), None),
            (TargetAssignmentKey(group.group_id, member_id), None),
            (ConsumerMemberKey(group.group_id, member_id), None),
        ]
        member = group.members[member_id]
        named.subtract(member.topic_names)
        if member.topic_pattern:
            patterns[member.topic_pattern] -= 1
    names = {name for name, count in named.items() if count > 0}
    for pattern, resolved in group.patterns.items():
        if patterns[pattern] > 0:
            names.update(resolved.topics)
        else:
            records.append((ResolvedPatternKey(group.group_id, pattern), None))
    hashed = metadata_hash(names, topics)
    epoch = group.epoch + 1
    records.append((GroupEpochKey(group.group_id), GroupEpoch(epoch, hashed)))
    if len(group.members) == len(member_ids):  # without members the next target is empty
        records.append((TargetEpochKey(group.group_id), TargetEpoch(epoch)))
    return records


def owes_partitions(group: ConsumerGroup, member_id: str) -> bool:
    """Return whether a member has yet to revoke partitions."""
    now = group.assignments.get(member_id)
    return now is not None and now.state == MemberState.UNREVOKED_PARTITIONS
