"""The APIs for members with the classic protocol, in classic groups and in consumer groups.

JoinGroup 0-9    v1 rebalance timeout (KIP-62), v4 the member id is assigned first (KIP-394),
                 v5 static members (KIP-345), v7 protocol type and name (KIP-559), v8 reason
                 (KIP-800), v9 skip_assignment (KIP-814).
SyncGroup 0-5    v3 static members, v5 protocol type and name.
Heartbeat 0-4    v3 static members.
LeaveGroup 0-5   v3 several members (KIP-345), v5 reason.

JoinGroup and SyncGroup wait in the group until it can answer. See coordinator/groups. A heartbeat
that arrives while the coordinator loads is answered without an error, as in Kafka. The session
restarts when the group is loaded.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from ....coordinator.groups.consumer.consumer_group import ConsumerGroup
from ....coordinator.groups.group_member import metadata_bytes
from ....coordinator.groups.group_messages import (
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    LeavingMember,
    SyncAnswer,
    SyncRequest,
)
from ....runtime.steps import Steps
from ....wire.acls import AclOperation
from ....wire.errors import (
    CoordinatorLoadInProgress,
    ErrorCode,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidRequest,
    InvalidSessionTimeout,
    KafkaError,
    UnknownServerError,
)
from ....wire.framing import Buffer, RequestHeader
from ....wire.messages import api_keys, control, requests, responses
from ....wire.primitives import STRING_BYTES_MAX
from ...listener.dispatch import Api, RequestContext, control_api, waiting_api
from ...listener.pending_answer import PendingAnswer
from ...security.rights import on_group
from ...services import BrokerServices
from ..answers import code_only, completing

ID_FIRST_FROM, NULL_NAME_FROM, SKIPPING_FROM = 4, 7, 9
BATCHED_FROM = 3  # a version of LeaveGroup
NAMED_FROM = 5  # the version of SyncGroup from which on the member must name its protocol
# The limit of one member's protocols, with names and metadata. Kafka has no limit, but a group's
# record must fit into a batch.
METADATA_BYTES_MAX = 1024 * 1024
PROTOCOLS_MAX = 1_000  # for one member
ASSIGNMENTS_MAX = 10_000  # for one group
LEAVING_A_STEP = 50
BROKEN_ANSWER = ErrorCode.UNKNOWN_SERVER_ERROR  # in place of an answer that cannot be encoded


def join_group(
    context: RequestContext, header: RequestHeader, request: "requests.JoinGroupRequest"
) -> list[Buffer] | PendingAnswer:
    """Answer when the next generation begins, or immediately with an error.

    In a consumer group a JoinGroup does not wait for other members.
    """
    version = header.api_version
    try:
        asked = _join_request(context, header, request)
        shard = context.broker.groups.shard_for(request.group_id)
    except KafkaError as error:
        return [_join_answer(JoinAnswer(error=error.number, member_id=request.member_id), version)]
    pending = PendingAnswer()
    ticket = completing(
        pending, partial(_join_answer, version=version), JoinAnswer(error=BROKEN_ANSWER)
    )
    context.broker.groups.decide(
        shard, request.group_id, lambda turn: shard.table.join(asked, ticket, turn)
    )
    return pending


def _join_request(
    context: RequestContext, header: RequestHeader, request: "requests.JoinGroupRequest"
) -> JoinRequest:
    version = header.api_version
    config = context.broker.config
    _check_group_id(request.group_id)
    if len(request.protocols) > PROTOCOLS_MAX:
        raise InvalidRequest(f"A member names at most {PROTOCOLS_MAX} protocols.")
    session_ms = request.session_timeout
    if not (
        config.group_min_session_timeout_ms <= session_ms <= config.group_max_session_timeout_ms
    ):
        raise InvalidSessionTimeout
    by_name = {each.name: bytes(each.metadata) for each in reversed(request.protocols)}
    protocols = tuple(reversed(by_name.items()))
    if metadata_bytes(protocols) > METADATA_BYTES_MAX:
        raise InvalidRequest(f"The protocols of a member exceed {METADATA_BYTES_MAX} bytes.")
    rebalance_ms = getattr(request, "rebalance_timeout", -1)
    instance_id = getattr(request, "group_instance_id", None)
    client_id = header.client_id or ""
    new_member_id = f"{client_id if instance_id is None else instance_id}-{uuid4()}"
    if len(new_member_id.encode()) > STRING_BYTES_MAX:
        # Kafka answers the same.
        raise UnknownServerError("The id of the new member is too long to be written.")
    return JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        new_member_id=new_member_id,
        group_instance_id=instance_id,
        client_id=client_id,
        client_host=f"/{context.peer_host}",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=session_ms if rebalance_ms < 0 else rebalance_ms,
        protocol_type=request.protocol_type,
        protocols=protocols,
        reason=getattr(request, "reason", None) or "",
        requires_member_id=version >= ID_FIRST_FROM,
        can_skip_assignment=version >= SKIPPING_FROM,
    )


def _join_answer(answer: JoinAnswer | SyncAnswer, version: int) -> Buffer:
    assert isinstance(answer, JoinAnswer)
    name = answer.protocol_name
    values: responses.JoinGroup.Response = {
        "error_code": answer.error,
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": "" if name is None and version < NULL_NAME_FROM else name,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "metadata": member.metadata,
            }
            for member in answer.members
        ],
    }
    return control.encode_response(api_keys.JOIN_GROUP, version, values)


def _join_error(
    context: RequestContext, header: RequestHeader, body: memoryview, error: KafkaError
) -> list[Buffer]:
    return [_join_answer(JoinAnswer(error=error.number), header.api_version)]


def sync_group(
    context: RequestContext, header: RequestHeader, request: "requests.SyncGroupRequest"
) -> list[Buffer] | PendingAnswer:
    """Answer with the member's assignment, which is known after the group leader's request."""
    version = header.api_version
    protocol_type = getattr(request, "protocol_type", None)
    protocol_name = getattr(request, "protocol_name", None)
    if version >= NAMED_FROM and (protocol_type is None or protocol_name is None):
        raise InconsistentGroupProtocol
    _check_group_id(request.group_id)
    if len(request.assignments) > ASSIGNMENTS_MAX:
        raise InvalidRequest(f"An assignment is for at most {ASSIGNMENTS_MAX} members.")
    shard = context.broker.groups.shard_for(request.group_id)
    pending = PendingAnswer()
    asked = SyncRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
    )
    ticket = completing(
        pending, partial(_sync_answer, version=version), SyncAnswer(error=BROKEN_ANSWER)
    )
    context.broker.groups.decide(
        shard, request.group_id, lambda turn: shard.table.sync(asked, ticket, turn)
    )
    return pending


def _sync_answer(answer: JoinAnswer | SyncAnswer, version: int) -> Buffer:
    assert isinstance(answer, SyncAnswer)
    values: responses.SyncGroup.Response = {
        "error_code": answer.error,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol_name,
        "assignment": answer.assignment,
    }
    return control.encode_response(api_keys.SYNC_GROUP, version, values)


def _sync_error(
    context: RequestContext, header: RequestHeader, body: memoryview, error: KafkaError
) -> list[Buffer]:
    return [_sync_answer(SyncAnswer(error=error.number), header.api_version)]


def heartbeat(
    context: RequestContext, header: RequestHeader, request: "requests.HeartbeatRequest"
) -> "responses.Heartbeat.Response":
    """Renew a member's session, and report a rebalance in the answer."""
    _check_group_id(request.group_id)
    groups = context.broker.groups
    try:
        shard = groups.shard_for(request.group_id)
    except CoordinatorLoadInProgress:
        return {"error_code": ErrorCode.NONE}
    groups.decide(
        shard,
        request.group_id,
        lambda turn: shard.table.heartbeat(
            request.group_id,
            request.member_id,
            getattr(request, "group_instance_id", None),
            request.generation_id,
            turn,
        ),
    )
    return {"error_code": ErrorCode.NONE}


def leave_group(
    context: RequestContext, header: RequestHeader, request: "requests.LeaveGroupRequest"
) -> Any:
    """Remove members from a group, and return an answer for each member.

    For a consumer group the result is a coroutine that returns the answer.
    """
    _check_group_id(request.group_id)
    shard = context.broker.groups.shard_for(request.group_id)
    if isinstance(shard.groups.get(request.group_id), ConsumerGroup):
        return _leave_consumer_group(context.broker, header.api_version, request)
    return _leave_classic_group(context, header, request)


async def _leave_consumer_group(
    broker: BrokerServices, version: int, request: "requests.LeaveGroupRequest"
) -> "responses.LeaveGroup.Response":
    """Remove members of a consumer group, and return the answer once the removal is committed.

    Members are removed in steps of LEAVING_A_STEP. Each step has its own group epoch.
    """
    group_id = request.group_id
    members: list[responses.LeaveGroup.MemberResponse] = []
    if version < BATCHED_FROM:
        leaving = [LeavingMember(member_id=request.member_id)]
        return {"error_code": (await _expelled(broker, group_id, leaving))[0]}
    for start in range(0, len(request.members), LEAVING_A_STEP):
        leaving = list(map(_leaving, request.members[start : start + LEAVING_A_STEP]))
        try:
            errors = await _expelled(broker, group_id, leaving)
        except KafkaError as error:
            if not members:
                raise
            errors = [error.number] * len(leaving)  # the other members have already left
        members += map(_left, leaving, errors)
        await broker.work.share.room()
    return {"error_code": ErrorCode.NONE, "members": members}


async def _expelled(
    broker: BrokerServices, group_id: str, leaving: list[LeavingMember]
) -> Sequence[int]:
    answered: asyncio.Future[LeaveAnswer] = asyncio.get_running_loop().create_future()

    def ticket(answer: LeaveAnswer) -> None:
        if not answered.done():
            answered.set_result(answer)

    groups = broker.groups
    # Looked up again, since the shard may have resigned in the meantime.
    shard = groups.shard_for(group_id)
    # The group has changed its protocol in the meantime.
    if shard.table.classic(group_id) is not None:
        return _leave(broker, group_id, leaving)
    consumers = shard.table.consumers
    groups.decide(shard, group_id, lambda turn: consumers.leave(group_id, leaving, ticket, turn))
    return (await answered).errors


def _leave_classic_group(
    context: RequestContext, header: RequestHeader, request: "requests.LeaveGroupRequest"
) -> "Steps[responses.LeaveGroup.Response]":
    if header.api_version < BATCHED_FROM:
        leaving = [LeavingMember(member_id=request.member_id)]
        return {"error_code": _leave(context.broker, request.group_id, leaving)[0]}
    members: list[responses.LeaveGroup.MemberResponse] = []
    for start in range(0, max(1, len(request.members)), LEAVING_A_STEP):
        if start:
            yield
        leaving = list(map(_leaving, request.members[start : start + LEAVING_A_STEP]))
        try:
            errors = _leave(context.broker, request.group_id, leaving)
        except KafkaError as error:
            if not members:
                raise
            errors = [error.number] * len(leaving)  # the other members have already left
        members += map(_left, leaving, errors)
    return {"error_code": ErrorCode.NONE, "members": members}


def _leaving(member: "requests.LeaveGroupRequest.MemberIdentity") -> LeavingMember:
    return LeavingMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        reason=getattr(member, "reason", None) or "",
    )


def _left(member: LeavingMember, error: int) -> "responses.LeaveGroup.MemberResponse":
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "error_code": error,
    }


def _leave(broker: BrokerServices, group_id: str, leaving: list[LeavingMember]) -> list[int]:
    _check_group_id(group_id)
    shard = broker.groups.shard_for(group_id)
    return broker.groups.decide(
        shard, group_id, lambda turn: shard.table.leave(group_id, leaving, turn)
    )


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise InvalidGroupId


def apis() -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    rights = (on_group(AclOperation.READ),)
    return (
        waiting_api(api_keys.JOIN_GROUP, (0, 9), join_group, _join_error, rights=rights),
        control_api(api_keys.HEARTBEAT, (0, 4), heartbeat, code_only, rights=rights),
        control_api(api_keys.LEAVE_GROUP, (0, 5), leave_group, code_only, rights=rights),
        waiting_api(api_keys.SYNC_GROUP, (0, 5), sync_group, _sync_error, rights=rights),
    )
