"""The APIs of consumer groups, for members and administrators (KIP-848).

ConsumerGroupHeartbeat 0-1   v1 regular expressions, and the member creates its own id.
ConsumerGroupDescribe 0-1    v1 types of members.

A heartbeat is answered when its changes are committed, and a description waits for pending changes.
No answer contains a state that may still be lost.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from ....coordinator.groups.consumer.consumer_group import (
    JOINS,
    LEAVES,
    LEAVES_FOR_NOW,
    NOTHING_ASSIGNED,
    member_bytes,
)
from ....coordinator.groups.consumer.heartbeat_messages import (
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from ....coordinator.groups.consumer.records import (
    ConsumerMember,
    CurrentAssignment,
    PartitionsByTopic,
)
from ....coordinator.groups.consumer.target_assignment import preferred_assignor
from ....coordinator.metadata.cluster_state import ClusterState
from ....runtime.steps import StepCounter, Steps
from ....wire.acls import AclOperation, ResourceType
from ....wire.errors import (
    ErrorCode,
    InvalidGroupId,
    InvalidRequest,
    KafkaError,
    TopicAuthorizationFailed,
    UnsupportedAssignor,
    UnsupportedVersion,
)
from ....wire.features import GROUP_VERSION
from ....wire.framing import Buffer, RequestHeader
from ....wire.messages import api_keys, control, requests, responses
from ....wire.primitives import encode_string
from ...listener.dispatch import Api, RequestContext, control_api, waiting_api
from ...listener.large_answers import ENTRY_BYTES
from ...listener.pending_answer import PendingAnswer
from ...security.access import Access
from ...security.rights import OfAnswer, on_each_name, on_each_topic, on_group
from ...services import BrokerServices
from ..answers import code_and_message, completing, of_each
from ..metadata.cluster import NOT_ASKED, operations_on

if TYPE_CHECKING:
    _Member = responses.ConsumerGroupDescribe.Member
    _Assigned = responses.ConsumerGroupDescribe.TopicPartitions
OWN_ID_FROM = 1
TOPICS_MAX = 10_000  # the limit of topics that one member subscribes to, and of topics that it owns
PARTITIONS_MAX = 100_000
MEMBERS_A_STEP = 20
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
NOT_SHOWN = "The group has described topic(s) that the client is not authorized to describe."
_NO_ERROR = bytes(4 + 2 + 1)  # throttle time, error code, and a null message
_EPOCH_AND_INTERVAL = Struct(">ii")
_NO_ASSIGNMENT = b"\xff\x00"  # a null assignment, and no tagged fields
BROKEN_ANSWER = ConsumerHeartbeatAnswer(error=ErrorCode.UNKNOWN_SERVER_ERROR)


def consumer_group_heartbeat(
    context: RequestContext,
    header: RequestHeader,
    request: "requests.ConsumerGroupHeartbeatRequest",
) -> list[Buffer] | PendingAnswer:
    """Answer when the state in the answer is committed."""
    version, groups = header.api_version, context.broker.groups
    _check_served(context.broker)
    if _says_nothing(request):
        shard = groups.shard_for(request.group_id)
        client = header.client_id or "", f"/{context.peer_host}"
        who = request.group_id, request.member_id, request.member_epoch, client
        beat = partial(shard.table.consumers.beat, *who, shard.replayed)
        if (answer := groups.decide(shard, request.group_id, beat)) is not None:
            return [_short_answer(answer)]
    asked = _heartbeat(context, header, request)
    shard = groups.shard_for(asked.group_id)
    pending = PendingAnswer()
    ticket = completing(pending, partial(_heartbeat_answer, version=version), BROKEN_ANSWER)
    consumers = shard.table.consumers
    groups.decide(shard, asked.group_id, lambda turn: consumers.heartbeat(asked, ticket, turn))
    return pending


def _check_served(broker: BrokerServices) -> None:
    """Raise UnsupportedVersion if the cluster or this broker supports only classic groups."""
    protocols = broker.config.group_coordinator_rebalance_protocols
    if "consumer" not in protocols or not broker.state.feature_level(GROUP_VERSION):
        raise UnsupportedVersion


def _says_nothing(request: "requests.ConsumerGroupHeartbeatRequest") -> bool:
    """Return whether a valid heartbeat has only a group id, a member id and a member epoch."""
    return (
        request.member_epoch > JOINS
        and request.subscribed_topic_names is None is request.server_assignor
        and request.instance_id is None is request.rack_id
        and request.rebalance_timeout == -1
        and not request.topic_partitions
        and getattr(request, "subscribed_topic_regex", None) is None
        and bool(request.group_id.strip() and request.member_id.strip())
    )


def _heartbeat(
    context: RequestContext,
    header: RequestHeader,
    request: "requests.ConsumerGroupHeartbeatRequest",
) -> ConsumerHeartbeat:
    """Return the heartbeat in a request, or raise InvalidRequest or UnsupportedAssignor."""
    _check(request, header.api_version, context.broker.config.group_consumer_assignors)
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return ConsumerHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id or str(uuid4()),
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout,
        topic_names=None if names is None else tuple(sorted(set(names))),
        topic_pattern=getattr(request, "subscribed_topic_regex", None),
        server_assignor=request.server_assignor,
        owned=None if owned is None else _partitions(owned),
        client_id=header.client_id or "",
        client_host=f"/{context.peer_host}",
    )


def _partitions(
    owned: "list[requests.ConsumerGroupHeartbeatRequest.TopicPartitions]",
) -> "dict[bytes, frozenset[int]]":
    """Return the partitions by topic id, joined if a topic occurs twice."""
    partitions: dict[bytes, set[int]] = {}
    for each in owned:
        partitions.setdefault(each.topic_id, set()).update(each.partitions)
    return {topic_id: frozenset(indexes) for topic_id, indexes in partitions.items()}


def _check(
    request: "requests.ConsumerGroupHeartbeatRequest", version: int, assignors: tuple[str, ...]
) -> None:
    names, owned, epoch = (
        request.subscribed_topic_names,
        request.topic_partitions,
        request.member_epoch,
    )
    pattern = getattr(request, "subscribed_topic_regex", None)
    if not request.group_id.strip():
        raise InvalidRequest("GroupId can't be empty.")
    if request.instance_id is not None and not request.instance_id.strip():
        raise InvalidRequest("InstanceId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise InvalidRequest("RackId can't be empty.")
    if (version >= OWN_ID_FROM or epoch != JOINS) and not request.member_id.strip():
        raise InvalidRequest("MemberId can't be empty.")
    if epoch < LEAVES_FOR_NOW:
        raise InvalidRequest(f"MemberEpoch is invalid: {epoch}.")
    if epoch == LEAVES_FOR_NOW and request.instance_id is None:
        raise InvalidRequest("InstanceId can't be null.")
    if epoch == JOINS:
        if request.rebalance_timeout == -1:
            raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
        if owned is None or owned:
            raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
        if names is None and pattern is None:
            raise InvalidRequest(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    if len(names or ()) > TOPICS_MAX or len(owned or ()) > TOPICS_MAX:
        raise InvalidRequest(f"A member names at most {TOPICS_MAX} topics.")
    if sum(len(each.partitions) for each in owned or ()) > PARTITIONS_MAX:
        raise InvalidRequest(f"A member owns at most {PARTITIONS_MAX} partitions.")
    assignor = request.server_assignor
    if epoch not in (LEAVES, LEAVES_FOR_NOW) and assignor not in (None, *assignors):
        raise UnsupportedAssignor(
            f"ServerAssignor {assignor} is not supported. Supported assignors: "
            f"{', '.join(assignors)}."
        )


def _heartbeat_answer(answer: ConsumerHeartbeatAnswer, version: int) -> Buffer:
    values: responses.ConsumerGroupHeartbeat.Response = {
        "error_code": answer.error,
        "error_message": answer.message,
        "member_id": answer.member_id,
        "member_epoch": answer.member_epoch,
        "heartbeat_interval": answer.heartbeat_interval_ms,
        "assignment": None,
    }
    if answer.assignment is not None:
        values["assignment"] = {
            "topic_partitions": [
                {"topic_id": topic_id, "partitions": sorted(partitions)}
                for topic_id, partitions in answer.assignment.items()
            ]
        }
    return control.encode_response(api_keys.CONSUMER_GROUP_HEARTBEAT, version, values)


def _short_answer(answer: ConsumerHeartbeatAnswer) -> bytes:
    """Encode an answer without error and assignment.

    The bytes of such an answer are equal in all versions.
    """
    who = encode_string(answer.member_id, True)
    told = _EPOCH_AND_INTERVAL.pack(answer.member_epoch, answer.heartbeat_interval_ms)
    return b"".join((_NO_ERROR, who, told, _NO_ASSIGNMENT))


HEARTBEAT_RIGHTS = (
    on_group(AclOperation.READ),
    on_each_topic(AclOperation.DESCRIBE, "subscribed_topic_names", refuses_all=True),
)


def _heartbeat_error(
    context: RequestContext, header: RequestHeader, body: memoryview, error: KafkaError
) -> list[Buffer]:
    refusal = ConsumerHeartbeatAnswer(error=error.number, message=str(error))
    return [_heartbeat_answer(refusal, header.api_version)]


async def consumer_group_describe(
    context: RequestContext, header: RequestHeader, request: "requests.ConsumerGroupDescribeRequest"
) -> "Steps[responses.ConsumerGroupDescribe.Response]":
    """Return each group's epochs, and its members with their current and target assignments."""
    _check_served(context.broker)
    seen: dict[str, _Seen | KafkaError] = {}
    for group_id in request.group_ids:
        await context.broker.work.share.room()
        try:
            seen[group_id] = await _seen(context.broker, group_id)
        except KafkaError as error:
            seen[group_id] = error
    return _described(context, request, seen)


class _Seen(NamedTuple):
    """A snapshot of a group, which does not change while members join and leave."""

    state_name: str
    epoch: int
    target_epoch: int
    assignor: str
    members: dict[str, ConsumerMember]
    assignments: dict[str, CurrentAssignment]
    targets: "dict[str, PartitionsByTopic]"


async def _seen(broker: BrokerServices, group_id: str) -> _Seen:
    """Return a snapshot of a group once all its records are committed."""
    if not group_id:
        raise InvalidGroupId
    shard = broker.groups.shard_for(group_id)
    group = shard.table.consumers.find(group_id)
    seen = _Seen(
        group.state_name,
        group.epoch,
        group.target.epoch,
        preferred_assignor(group.members.values(), broker.config.group_consumer_assignors[0]),
        dict(group.members),
        dict(group.assignments),
        dict(group.targets),
    )
    if group.appended_until > shard.replayed:
        await broker.groups.until_settled(shard)
    return seen


def _described(
    context: RequestContext,
    request: "requests.ConsumerGroupDescribeRequest",
    seen: dict[str, _Seen | KafkaError],
) -> "Steps[responses.ConsumerGroupDescribe.Response]":
    groups: list[responses.ConsumerGroupDescribe.DescribedGroup] = []
    for group_id in request.group_ids:
        group = seen[group_id]
        if isinstance(group, KafkaError):
            groups.append({"group_id": group_id, **code_and_message(group)})
        else:
            operations = NOT_ASKED
            if request.include_authorized_operations:
                operations = operations_on(context, ResourceType.GROUP, group_id)
            describing = _describe(context.broker.state, group_id, group, operations)
            groups.append((yield from describing))
        yield
    return {"groups": groups}


def _describe(
    state: ClusterState, group_id: str, group: _Seen, operations: int
) -> "Steps[responses.ConsumerGroupDescribe.DescribedGroup]":
    members: list[_Member] = []
    counter = StepCounter(MEMBERS_A_STEP)
    described: responses.ConsumerGroupDescribe.DescribedGroup = {
        "group_id": group_id,
        "group_state": group.state_name,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": group.assignor,
        "members": members,
        "authorized_operations": operations,
    }
    for member_id, member in group.members.items():
        members.append(_member(state, group, member_id, member))
        if counter.ends_step():
            yield
    return described


def _member(state: ClusterState, group: _Seen, member_id: str, member: ConsumerMember) -> "_Member":
    now = group.assignments.get(member_id, NOTHING_ASSIGNED)
    reads = {id_: {*indexes} for id_, indexes in now.assigned.items()}
    # The member still reads these partitions until it confirms their revocation.
    for topic_id, indexes in now.pending_revocation.items():
        reads.setdefault(topic_id, set()).update(indexes)
    return {
        "member_id": member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": now.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.topic_names,
        "subscribed_topic_regex": member.topic_pattern,
        "assignment": {"topic_partitions": _named(state, reads)},
        "target_assignment": {"topic_partitions": _named(state, group.targets.get(member_id, {}))},
        "member_type": CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    }


def _named(state: ClusterState, partitions: "Mapping[bytes, Iterable[int]]") -> "list[_Assigned]":
    """Return partitions with the names of their topics, and omit deleted topics."""
    return [
        {"topic_id": topic_id, "topic_name": topic.name, "partitions": sorted(indexes)}
        for topic_id, indexes in partitions.items()
        if (topic := state.topic_by_id(topic_id)) is not None
    ]


def _described_bytes(
    context: RequestContext, request: "requests.ConsumerGroupDescribeRequest"
) -> Steps[int]:
    size_bytes = 0
    counter = StepCounter()
    for group_id in request.group_ids:
        if counter.ends_step():
            yield
        try:
            group = context.broker.groups.shard_for(group_id).table.consumers.find(group_id)
        except KafkaError:
            continue
        size_bytes += (len(group.members) + len(group.holders)) * ENTRY_BYTES
        for member_id, member in list(group.members.items()):
            size_bytes += member_bytes(member_id, member)
            if counter.ends_steps(1 + len(member.topic_names)):
                yield
    return size_bytes


def _describe_refused(group_id: str, error: KafkaError) -> Any:
    return {"group_id": group_id, **code_and_message(error)}


def _show_groups(access: Access, state: object, request: object, values: Any) -> Steps[Any]:
    """Hide each group that has a topic which the client may not describe."""
    groups: list[Any] = []
    counter = StepCounter()
    for group in values["groups"]:
        is_shown = True
        for name in _topics_of(group):
            if counter.ends_step():
                yield
            is_shown = access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
            if not is_shown:
                break
        if is_shown:
            groups.append(group)
        else:
            refusal = TopicAuthorizationFailed(NOT_SHOWN)
            groups.append(_describe_refused(group["group_id"], refusal))
        if counter.ends_step():
            yield
    return {**values, "groups": groups}


def _topics_of(group: Any) -> Iterator[str]:
    """Yield the topics of the members of a described group, some repeatedly."""
    for member in group.get("members", ()):
        yield from member["subscribed_topic_names"] or ()
        for part in ("assignment", "target_assignment"):
            for each in member[part]["topic_partitions"]:
                yield each["topic_name"]


def apis() -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    return (
        waiting_api(
            api_keys.CONSUMER_GROUP_HEARTBEAT,
            (0, 1),
            consumer_group_heartbeat,
            _heartbeat_error,
            rights=HEARTBEAT_RIGHTS,
        ),
        control_api(
            api_keys.CONSUMER_GROUP_DESCRIBE,
            (0, 1),
            consumer_group_describe,
            of_each("groups", "group_ids", _describe_refused),
            rights=(
                on_each_name(AclOperation.DESCRIBE, ResourceType.GROUP, "group_ids"),
                OfAnswer(((AclOperation.DESCRIBE, ResourceType.TOPIC),), _show_groups),
            ),
            answer_bytes=_described_bytes,
        ),
    )
