"""The APIs of groups for administrators.

DescribeGroups 0-6   v3 authorized operations, v4 static members, v6 GROUP_ID_NOT_FOUND for a
                     missing group (KIP-1043), which older versions report as state Dead.
ListGroups 0-5       v4 states (KIP-518), v5 types (KIP-848); only the groups of this broker.
DeleteGroups 0-3     KIP-229; empty groups only, with all their offsets; v3 has an error message,
                     which is always null here.
"""

import asyncio
from functools import partial

from ....coordinator.groups.classic_group import ClassicGroup
from ....coordinator.groups.group_member import metadata_bytes
from ....coordinator.groups.group_states import GroupState
from ....runtime.steps import StepCounter, Steps, made
from ....wire.acls import AclOperation, ResourceType
from ....wire.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    GroupIdNotFound,
    KafkaError,
    NotCoordinator,
)
from ....wire.framing import RequestHeader
from ....wire.messages import api_keys, requests, responses
from ....wire.messages.schema_encoder import Each
from ...groups.removal import delete_group
from ...groups.shard import ShardState
from ...listener.dispatch import Api, RequestContext, control_api
from ...listener.large_answers import ENTRY_BYTES
from ...security.rights import on_cluster, on_each_name, shows_each
from ...services import BrokerServices
from ..answers import code_only, entries_bytes, of_each
from ..metadata.cluster import NOT_ASKED, operations_on

NOT_FOUND_FROM = 6
GROUPS_A_STEP = 200
DELETED_AT_ONCE = 50


def describe_groups(
    context: RequestContext, header: RequestHeader, request: "requests.DescribeGroupsRequest"
) -> "responses.DescribeGroups.Response":
    """Return each group's state and members."""
    version = header.api_version
    with_operations = getattr(request, "include_authorized_operations", False)

    def describe(group_id: str) -> "responses.DescribeGroups.DescribedGroup":
        operations = NOT_ASKED
        if with_operations:
            operations = operations_on(context, ResourceType.GROUP, group_id)
        return _describe(context.broker, group_id, version, operations)

    return {"groups": Each(describe, request.groups)}


def _described_bytes(
    context: RequestContext, request: "requests.DescribeGroupsRequest"
) -> Steps[int]:
    size_bytes = 0
    counter = StepCounter()
    for group_id in request.groups:
        try:
            group = context.broker.groups.shard_for(group_id).table.classic(group_id)
        except KafkaError:
            group = None
        for member in () if group is None else list(group.members.values()):
            size_bytes += metadata_bytes(member.protocols) + len(member.assignment)
            size_bytes += ENTRY_BYTES
            if counter.ends_step():
                yield
        size_bytes += ENTRY_BYTES
        if counter.ends_step():
            yield
    return size_bytes


def _listed_bytes(context: RequestContext, request: "requests.ListGroupsRequest") -> Steps[int]:
    return entries_bytes(lambda shard: len(shard.groups), list(context.broker.groups.shards))


def _describe(
    broker: BrokerServices, group_id: str, version: int, operations: int
) -> "responses.DescribeGroups.DescribedGroup":
    try:
        group = broker.groups.shard_for(group_id).table.find_classic(group_id)
    except GroupIdNotFound as error:
        dead: responses.DescribeGroups.DescribedGroup
        dead = {"group_id": group_id, "group_state": GroupState.DEAD.value}
        if version < NOT_FOUND_FROM:
            return dead | {"authorized_operations": operations}
        return dead | {"error_code": error.number, "error_message": str(error)}
    except KafkaError as error:
        return {"group_id": group_id, "error_code": error.number}
    return {
        "group_id": group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": group.protocol_name or "" if group.state is GroupState.STABLE else "",
        "members": _members(group),
        "authorized_operations": operations,
    }


def _members(group: ClassicGroup) -> "list[responses.DescribeGroups.DescribedGroupMember]":
    is_stable = group.state is GroupState.STABLE
    return [
        {
            "member_id": member.member_id,
            "group_instance_id": member.group_instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "member_metadata": member.metadata(group.protocol_name) if is_stable else b"",
            "member_assignment": member.assignment,
        }
        for member in group.members.values()
    ]


async def list_groups(
    context: RequestContext, header: RequestHeader, request: "requests.ListGroupsRequest"
) -> "Steps[responses.ListGroups.Response]":
    """Return the groups of this broker, once the pending records of consumer groups are committed.

    A shard that resigns during the wait is omitted.
    """
    groups = context.broker.groups
    settling = [
        groups.until_settled(shard)
        for shard in groups.shards
        if shard.state is ShardState.SERVING and shard.consumer_records_until > shard.replayed
    ]
    for outcome in await asyncio.gather(*settling, return_exceptions=True):
        # NotCoordinator: the shard has resigned, and another broker lists its groups.
        if isinstance(outcome, BaseException) and not isinstance(outcome, NotCoordinator):
            raise outcome
    return _listing(context, request)


def _listing(
    context: RequestContext, request: "requests.ListGroupsRequest"
) -> "Steps[responses.ListGroups.Response]":
    states = set((yield from made(_filter, getattr(request, "states_filter", ()))))
    types = set((yield from made(_filter, getattr(request, "types_filter", ()))))
    groups = context.broker.groups
    if groups.is_stopping:
        raise CoordinatorNotAvailable
    if any(shard.state is ShardState.LOADING for shard in groups.shards):
        raise CoordinatorLoadInProgress
    listed: list[responses.ListGroups.ListedGroup] = []
    for shard in list(groups.shards):
        for count, group in enumerate(list(shard.groups.values()), 1):
            if count % GROUPS_A_STEP == 0:
                yield
            # The group was removed during the request.
            if shard.groups.get(group.group_id) is not group:
                continue
            if types and group.type.value not in types:
                continue
            if not states or group.state_name.lower() in states:
                listed.append(
                    {
                        "group_id": group.group_id,
                        "protocol_type": group.protocol_type or "",
                        "group_state": group.state_name,
                        "group_type": group.type.value,
                    }
                )
    return {"groups": listed}


def _filter(text: str) -> str:
    return text.strip().lower()


async def delete_groups(
    context: RequestContext, header: RequestHeader, request: "requests.DeleteGroupsRequest"
) -> "responses.DeleteGroups.Response":
    """Delete each group with all its offsets, and return the error of each group."""
    group_ids = list(dict.fromkeys(request.groups_names))
    results: list[responses.DeleteGroups.DeletableGroupResult] = []
    for start in range(0, len(group_ids), DELETED_AT_ONCE):
        some = group_ids[start : start + DELETED_AT_ONCE]
        await context.broker.work.share.room()
        results += await asyncio.gather(*(_delete(context.broker, each) for each in some))
    return {"results": results}


async def _delete(
    broker: BrokerServices, group_id: str
) -> "responses.DeleteGroups.DeletableGroupResult":
    try:
        await delete_group(broker.groups, broker.groups.shard_for(group_id), group_id)
    except KafkaError as error:
        return _failed(group_id, error)
    return {"group_id": group_id, "error_code": ErrorCode.NONE}


def _deletion_error(
    request: "requests.DeleteGroupsRequest", error: KafkaError
) -> "responses.DeleteGroups.Response":
    group_ids = dict.fromkeys(request.groups_names)
    return {"results": Each(partial(_failed, error=error), group_ids)}


def _failed(group_id: str, error: KafkaError) -> "responses.DeleteGroups.DeletableGroupResult":
    return {"group_id": group_id, "error_code": error.number}


def apis() -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    return (
        control_api(
            api_keys.DESCRIBE_GROUPS,
            (0, 6),
            describe_groups,
            of_each("groups", "groups", _failed),
            rights=(on_each_name(AclOperation.DESCRIBE, ResourceType.GROUP, "groups"),),
            answer_bytes=_described_bytes,
        ),
        control_api(
            api_keys.LIST_GROUPS,
            (0, 5),
            list_groups,
            code_only,
            rights=(
                shows_each(
                    AclOperation.DESCRIBE,
                    ResourceType.GROUP,
                    "groups",
                    "group_id",
                    unless=on_cluster(AclOperation.DESCRIBE),
                ),
            ),
            answer_bytes=_listed_bytes,
        ),
        control_api(
            api_keys.DELETE_GROUPS,
            (0, 3),
            delete_groups,
            _deletion_error,
            rights=(on_each_name(AclOperation.DELETE, ResourceType.GROUP, "groups_names"),),
        ),
    )
