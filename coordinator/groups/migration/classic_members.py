"""The requests of members of the classic protocol in a consumer group, as pure functions.

The generation of a classic member is its member epoch. The coordinator assigns, so no member is the
leader.

    JoinGroup    the member's subscription and partitions, handled as a heartbeat that reports them
    SyncGroup    the member's current assignment, unless the member must join again first
    Heartbeat    REBALANCE_IN_PROGRESS if the member must join again, because of a newer target,
                 of partitions to revoke, or of free partitions in its target
    LeaveGroup   as for members of the newer protocol (see `consumer.leaving`)
"""

from ....wire.consumer_protocol import Subscription, assignment_for, decode_subscription
from ....wire.errors import (
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
    UnknownMemberId,
)
from ....wire.identifiers import TopicPartition
from ....wire.primitives import MalformedFrame
from ..consumer.consumer_group import JOINS, NOTHING_ASSIGNED, ConsumerGroup
from ..consumer.heartbeat_messages import ConsumerHeartbeat
from ..consumer.heartbeats import check_instance
from ..consumer.known_topics import Topics
from ..consumer.reconciliation import MemberState
from ..consumer.records import ClassicMetadata, ConsumerMember, CurrentAssignment
from ..consumer_protocol import CONSUMER
from ..group_messages import NO_MEMBER, JoinRequest, Protocols, SyncRequest

ELEMENTS_MAX = 20_000  # the limit of topics and partitions that one member names
HAS_AN_ID = 1  # stands for any member epoch above 0; the group has the real one


def check_join(group: ConsumerGroup, request: JoinRequest) -> None:
    """Check that the joining member and all classic members have a protocol in common.

    Raises InconsistentGroupProtocol if they do not.
    """
    others = [
        {name for name, _ in member.classic.protocols}
        for member_id, member in group.members.items()
        if member.classic is not None and member_id != request.member_id
    ]
    named = {name for name, _ in request.protocols}
    if request.protocol_type != CONSUMER or not named.intersection(*others):
        raise InconsistentGroupProtocol


def asked_by(request: JoinRequest, member_id: str, topics: Topics) -> ConsumerHeartbeat:
    """Return a JoinGroup as the heartbeat that it is equivalent to.

    Raises InconsistentGroupProtocol if the content is unreadable or too long.
    """
    said = _subscription(request.protocols)
    owned: dict[bytes, set[int]] = {}
    for name, partition in said.owned:
        if name in topics:
            owned.setdefault(topics[name].topic_id, set()).add(partition)
    return ConsumerHeartbeat(
        group_id=request.group_id,
        member_id=member_id,
        member_epoch=JOINS if request.member_id == NO_MEMBER else HAS_AN_ID,
        instance_id=request.group_instance_id,
        rack_id=said.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=tuple(sorted(set(said.topics))),
        topic_pattern="",
        owned={topic_id: frozenset(some) for topic_id, some in owned.items()},
        client_id=request.client_id,
        client_host=request.client_host,
        classic=ClassicMetadata(request.session_timeout_ms, request.protocols),
    )


def _subscription(protocols: Protocols) -> Subscription:
    try:
        return decode_subscription(protocols[0][1], elements_max=ELEMENTS_MAX)
    except MalformedFrame as error:
        raise InconsistentGroupProtocol from error


def check_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ConsumerMember:
    """Return a member of the classic protocol.

    Raises the KafkaError for a wrong id or generation.
    """
    if instance_id is not None:
        check_instance(group, member_id, instance_id)
    member = group.check_member(member_id)
    if member.classic is None:
        raise UnknownMemberId(f"Member {member_id} does not use the classic protocol.")
    epoch = group.assignments.get(member_id, NOTHING_ASSIGNED).member_epoch
    if generation != epoch:
        raise IllegalGeneration(
            f"The generation {generation} of member {member_id} is not its epoch, {epoch}."
        )
    return member


def sync(group: ConsumerGroup, request: SyncRequest, topics: Topics) -> bytes:
    """Return the bytes of the member's current assignment.

    Raises the errors of `check_member`, InconsistentGroupProtocol, RebalanceInProgress.
    """
    member = check_member(group, request.member_id, request.group_instance_id, request.generation)
    assert member.classic is not None
    names = (name for name, _ in member.classic.protocols)
    if request.protocol_type not in (None, CONSUMER):
        raise InconsistentGroupProtocol
    if request.protocol_name not in (None, *names):
        raise InconsistentGroupProtocol
    now = group.assignments.get(request.member_id, NOTHING_ASSIGNED)
    # A member that must revoke partitions needs this answer first, and joins again afterwards.
    if _is_behind(group, now) and now.state != MemberState.UNREVOKED_PARTITIONS:
        raise RebalanceInProgress
    read = {topics[name].topic_id: name for name in group.topics_of(member) if name in topics}
    has: list[TopicPartition] = []
    for topic_id, partitions in now.assigned.items():
        if topic_id in read:
            has += [(read[topic_id], each) for each in partitions]
    return assignment_for(member.classic.protocols[0][1], has)


def must_rejoin(group: ConsumerGroup, member_id: str) -> bool:
    """Return whether a member's Heartbeat must be answered with REBALANCE_IN_PROGRESS."""
    now = group.assignments.get(member_id, NOTHING_ASSIGNED)
    if _is_behind(group, now) or now.state == MemberState.UNREVOKED_PARTITIONS:
        return True
    if now.state != MemberState.UNRELEASED_PARTITIONS:
        return False
    return not any(
        group.is_held(topic_id, each)
        for topic_id, partitions in group.targets.get(member_id, {}).items()
        for each in partitions
        if each not in now.assigned.get(topic_id, {})
    )


def _is_behind(group: ConsumerGroup, now: CurrentAssignment) -> bool:
    """Return whether the member's epoch is older than the target's, or than the group's.

    The group's epoch counts only if all members use the classic protocol. Otherwise the heartbeat
    of a member of the newer protocol computes the newer target.
    """
    if now.member_epoch < group.target.epoch:
        return True
    return now.member_epoch < group.epoch and all(
        member.classic is not None for member in group.members.values()
    )
