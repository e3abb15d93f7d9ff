"""Descriptions of groups by their coordinators, for classic, consumer, and other types."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ...wire.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from ...wire.errors import ErrorCode, GroupIdNotFound
from ...wire.identifiers import TopicPartition
from ...wire.primitives import MalformedFrame
from ..connection import BrokerConnection
from ..coordinator_lookup import raise_error_of

DESCRIBE_GROUPS, LIST_GROUPS, CONSUMER_GROUP_DESCRIBE = 15, 16, 69
DEAD = "Dead"  # the state in DescribeGroups below version 6 for a missing group
CLASSIC, CONSUMER = "classic", "consumer"
MEMBER_TYPES = {0: CLASSIC, 1: CONSUMER}
_OF_ANOTHER_TYPE = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in its coordinator's answer to ListGroups. `type` is "" if the answer has no type."""

    group_id: str
    protocol_type: str
    state: str
    coordinator: int
    type: str = ""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member. `partitions` is empty for protocols other than "consumer".

    epoch and target are set for members of a consumer group (KIP-848), else None. `partitions` are
    those the member may read now, including those to be revoked. `target` are those of the target
    assignment.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...] = ()
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None
    type: str = CLASSIC

    @property
    def gives_up(self) -> tuple[TopicPartition, ...]:
        """The partitions that the member has yet to revoke."""
        if self.target is None:
            return ()
        return tuple(each for each in self.partitions if each not in self.target)

    @property
    def waits_for(self) -> tuple[TopicPartition, ...]:
        """The partitions that the member will get after their owners have revoked them."""
        return tuple(each for each in self.target or () if each not in self.partitions)


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group. A group with only offsets is "Empty" and has no protocol type.

    epoch and target_epoch are set for a consumer group (KIP-848), else None. `protocol` is the
    assignor. Groups of other types have only their type and state.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[MemberDescription, ...] = field(default=())
    type: str = CLASSIC
    epoch: int | None = None
    target_epoch: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether the group has a known type, so that its members are described."""
        return self.type in (CLASSIC, CONSUMER)


async def listed_groups(connection: BrokerConnection, node_id: int) -> list[GroupListing]:
    """List the groups that a broker coordinates."""
    answer = await connection.call(LIST_GROUPS, {"states_filter": []})
    return listings(answer, node_id)


def listings(answer: Any, node_id: int) -> list[GroupListing]:
    """Return the groups in an answer to ListGroups, or raise the answer's error."""
    raise_error_of(answer, operation="Describe")
    return [
        GroupListing(
            group.group_id,
            group.protocol_type,
            getattr(group, "group_state", ""),
            node_id,
            getattr(group, "group_type", "").lower(),
        )
        for group in answer.groups
    ]


async def described_group(
    coordinator: BrokerConnection, node_id: int, group_id: str
) -> GroupDescription:
    """Describe a group of any type, or raise GroupIdNotFound."""
    if CONSUMER_GROUP_DESCRIBE in coordinator.versions:
        answer = await coordinator.call(CONSUMER_GROUP_DESCRIBE, {"group_ids": [group_id]})
        (group,) = answer.groups
        if group.error_code not in _OF_ANOTHER_TYPE:
            raise_error_of(group, group_id, "Describe")
            return consumer_group(group, node_id)
    (group,) = (await coordinator.call(DESCRIBE_GROUPS, {"groups": [group_id]})).groups
    is_missing = group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or group.group_state == DEAD
    if not is_missing:
        raise_error_of(group, group_id, "Describe")
        return classic_group(group, node_id)
    for each in await listed_groups(coordinator, node_id):
        if each.group_id == group_id and each.type not in ("", CLASSIC, CONSUMER):
            return GroupDescription(
                group_id, each.state, each.protocol_type, "", node_id, type=each.type
            )
    raise GroupIdNotFound(f"Group {group_id} not found.")


def classic_group(group: Any, node_id: int) -> GroupDescription:
    """Return one classic group as DescribeGroups describes it."""
    members = tuple(_member(member, group.protocol_type) for member in group.members)
    return GroupDescription(
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        node_id,
        members,
    )


def consumer_group(group: Any, node_id: int) -> GroupDescription:
    """Return one consumer group as ConsumerGroupDescribe describes it."""
    return GroupDescription(
        group.group_id,
        group.group_state,
        PROTOCOL_TYPE,
        group.assignor_name,
        node_id,
        tuple(
            MemberDescription(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                _partitions(member.assignment),
                member.member_epoch,
                _partitions(member.target_assignment),
                MEMBER_TYPES.get(getattr(member, "member_type", 1), CONSUMER),
            )
            for member in sorted(group.members, key=lambda each: str(each.member_id))
        ),
        CONSUMER,
        group.group_epoch,
        group.assignment_epoch,
    )


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    topics: Iterable[Any] = assignment.topic_partitions
    return tuple(sorted((str(t.topic_name), index) for t in topics for index in t.partitions))


def _member(member: Any, protocol_type: str) -> MemberDescription:
    assigned = bytes(member.member_assignment or b"")
    return MemberDescription(
        member.member_id,
        getattr(member, "group_instance_id", None),
        member.client_id,
        member.client_host,
        assigned_partitions(assigned) if protocol_type == PROTOCOL_TYPE else (),
    )


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions in a member's assignment of any version, or none if unreadable."""
    try:
        return tuple(sorted(decode_assignment(assignment)))
    except MalformedFrame:
        return ()
