"""The upgrade of a classic group when the first member of the newer protocol joins.

Only the format changes. The generation becomes the epoch of the group and of its members. Each
member keeps the partitions that the group leader assigned. These partitions also become the
member's target, so no member must revoke anything yet. The classic group is unchanged here, and is
removed when the records are in the log.
"""

from ....wire.consumer_protocol import decode_subscription, decode_whole_assignment
from ....wire.errors import GroupIdNotFound, KafkaError
from ....wire.primitives import MalformedFrame
from ..classic_group import ClassicGroup
from ..consumer.consumer_group import ConsumerGroup, ConsumerRecord
from ..consumer.known_topics import Topics
from ..consumer.reconciliation import MemberState
from ..consumer.records import (
    ClassicMetadata,
    ConsumerMember,
    ConsumerMemberKey,
    CurrentAssignment,
    CurrentAssignmentKey,
    GroupEpoch,
    GroupEpochKey,
    TargetAssignment,
    TargetAssignmentKey,
    TargetEpoch,
    TargetEpochKey,
)
from ..consumer.subscriptions import metadata_hash
from ..consumer_protocol import CONSUMER
from ..group_member import HeldMetadata, Member
from ..group_messages import GroupSettings

MEMBERS_MAX = 500  # a larger group would block the event loop for too long
ELEMENTS_MAX = 20_000  # topics and partitions of all members; the same limit


def check_upgrade(group: ClassicGroup, settings: GroupSettings) -> None:
    """Raise GroupIdNotFound if the group cannot become a consumer group."""
    size_max = min(MEMBERS_MAX, settings.consumer(group.group_id).max_size)
    if not settings.may_upgrade:
        raise _refused(group, "online upgrade is disabled")
    if group.protocol_type != CONSUMER:
        raise _refused(group, f"its protocol type is {group.protocol_type}, not {CONSUMER}")
    if len(group.members) > size_max:
        raise _refused(group, f"it has {len(group.members)} members, more than {size_max}")


def upgraded(group: ClassicGroup, topics: Topics) -> list[ConsumerRecord]:
    """Return the records of the upgraded group, or raise GroupIdNotFound.

    The members' subscriptions and assignments are decoded from the bytes of the embedded protocol.
    If the assignor has stored user data in an assignment, the group stays a classic group, since
    that data would be lost.
    """
    try:
        return _upgraded(group, topics)
    except MalformedFrame as error:
        words = f"the embedded consumer protocol is malformed or too long: {error}"
        raise _refused(group, words) from error


def _upgraded(group: ClassicGroup, topics: Topics) -> list[ConsumerRecord]:
    group_id, epoch = group.group_id, max(group.generation, 1)
    members, targets, assignments = [list[ConsumerRecord]() for _ in range(3)]
    names, left = set[str](), ELEMENTS_MAX
    for member_id, member in group.members.items():
        said = decode_subscription(_metadata(member, group.protocol_name), elements_max=left)
        partitions, user_data = decode_whole_assignment(member.assignment, left)
        if user_data:
            raise _refused(group, "an unsupported custom assignor is in use")
        left -= len(said.topics) + len(partitions)
        names.update(said.topics)
        has: dict[bytes, dict[int, int]] = {}
        for name, partition in partitions:
            if name in topics:
                has.setdefault(topics[name].topic_id, {})[partition] = epoch
        described = ConsumerMember(
            instance_id=member.group_instance_id,
            rack_id=said.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=tuple(sorted(set(said.topics))),
            topic_pattern="",
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=None,
            classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
        )
        members.append((ConsumerMemberKey(group_id, member_id), described))
        target = TargetAssignment({topic_id: frozenset(some) for topic_id, some in has.items()})
        targets.append((TargetAssignmentKey(group_id, member_id), target))
        now = CurrentAssignment(epoch, epoch, MemberState.STABLE, has, {})
        assignments.append((CurrentAssignmentKey(group_id, member_id), now))
    hashed = GroupEpoch(epoch, metadata_hash(names, topics))
    return [
        *members,
        (GroupEpochKey(group_id), hashed),
        *targets,
        (TargetEpochKey(group_id), TargetEpoch(epoch)),
        *assignments,
    ]


def draft(group_id: str, records: list[ConsumerRecord]) -> ConsumerGroup:
    """Return the group that the records will create, for the decision about the first heartbeat."""
    group = ConsumerGroup(group_id, HeldMetadata())
    for key, value in records:
        group.replay(key, value)
    return group


def _metadata(member: Member, protocol_name: str | None) -> bytes:
    """Return the member's metadata for the group's protocol, or else for the member's first one."""
    said = dict(member.protocols)
    return said.get(protocol_name or "", member.protocols[0][1])


def _refused(group: ClassicGroup, reason: str) -> KafkaError:
    return GroupIdNotFound(
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}."
    )
