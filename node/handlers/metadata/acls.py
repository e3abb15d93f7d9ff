"""The APIs of access control lists.

DescribeAcls, CreateAcls, DeleteAcls 1-3  KIP-140, prefixed patterns of KIP-290 from v1 on, any type
                                          of principal in v3. Without an authorizer the answer is
                                          SECURITY_DISABLED.

The filters of a DeleteAcls request can have at most 10,000 matches together, and at most 1,000 of
them can have wildcards. Above these limits the answer is INVALID_REQUEST, and nothing is deleted.

CreateAcls and DeleteAcls are answered when every live broker applies the new ACLs, so that a client
can use the new rights immediately on any broker. Kafka answers when the controller has them.
"""

from collections.abc import Sequence
from typing import Any

from ....coordinator.acls.acl_table import AclTable
from ....coordinator.acls.bindings import AclBinding, AclFilter, check_binding
from ....coordinator.metadata.commands import CreateAcls, DeleteAcls
from ....coordinator.metadata.results import Result
from ....runtime.steps import StepCounter, Steps, made
from ....wire.acls import AclOperation
from ....wire.errors import ErrorCode, InvalidRequest, KafkaError, error_for
from ....wire.framing import RequestHeader
from ....wire.messages import api_keys, requests, responses
from ...listener.dispatch import Api, RequestContext, control_api
from ...listener.large_answers import ENTRY_BYTES
from ...security.rights import on_cluster
from ...services import BrokerServices
from ..answers import NO_ERROR, code_and_message, code_with_message, of_each, outcome_of

DELETED_MAX, SCANS_MAX = 10_000, 1_000  # limits of one request


def _check_configured(broker: BrokerServices, sentence: str) -> None:
    if broker.authorizer is None:
        raise error_for(ErrorCode.SECURITY_DISABLED, sentence)


def _filter_of(
    request: "requests.DescribeAclsRequest | requests.DeleteAclsRequest.DeleteAclsFilter",
) -> AclFilter:
    return AclFilter(
        request.resource_type_filter,
        request.pattern_type_filter,
        request.resource_name_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )


def describe_acls(
    context: RequestContext, header: RequestHeader, request: "requests.DescribeAclsRequest"
) -> "Steps[responses.DescribeAcls.Response]":
    """Return the ACLs that match a filter, grouped by resource."""
    _check_configured(context.broker, "No Authorizer is configured on the broker")
    wanted = _filter_of(request)
    wanted.check()
    found = yield from context.broker.state.acls.matching(wanted)
    by_resource: dict[tuple[int, str, int], list[responses.DescribeAcls.AclDescription]] = {}
    counter = StepCounter()
    for acl in found:
        if counter.ends_step():
            yield
        resource = (acl.resource_type, acl.name, acl.pattern_type)
        by_resource.setdefault(resource, []).append(
            {
                "principal": acl.principal,
                "host": acl.host,
                "operation": acl.operation,
                "permission_type": acl.permission,
            }
        )
    resources: list[responses.DescribeAcls.DescribeAclsResource] = [
        {
            "resource_type": resource_type,
            "resource_name": name,
            "pattern_type": pattern_type,
            "acls": acls,
        }
        for (resource_type, name, pattern_type), acls in by_resource.items()
    ]
    return {"resources": resources}


def _described_bytes(
    context: RequestContext, request: "requests.DescribeAclsRequest"
) -> Steps[int]:
    return len(context.broker.state.acls) * ENTRY_BYTES  # an upper bound
    yield


async def create_acls(
    context: RequestContext, header: RequestHeader, request: "requests.CreateAclsRequest"
) -> "responses.CreateAcls.Response":
    """Create ACLs, and return the result for each."""
    broker = context.broker
    _check_configured(broker, "No Authorizer is configured.")
    asked = await broker.work.finish("CreateAcls", made(_creation, request.creations))
    wanted = [each for each in asked if isinstance(each, AclBinding)]
    result = await _decided(broker, CreateAcls(tuple(wanted)))
    decided = iter(result.items)

    def outcome(each: AclBinding | KafkaError) -> "responses.CreateAcls.AclCreationResult":
        if isinstance(each, KafkaError):
            return {**code_and_message(each)}
        return {**outcome_of(next(decided))}

    return {"results": await broker.work.finish("CreateAcls", made(outcome, asked))}


def _creation(asked: "requests.CreateAclsRequest.AclCreation") -> AclBinding | KafkaError:
    acl = AclBinding(
        asked.resource_type,
        asked.resource_pattern_type,
        asked.resource_name,
        asked.principal,
        asked.host,
        asked.operation,
        asked.permission_type,
    )
    try:
        check_binding(acl)
    except KafkaError as error:
        return error
    return acl


async def delete_acls(
    context: RequestContext, header: RequestHeader, request: "requests.DeleteAclsRequest"
) -> "responses.DeleteAcls.Response":
    """Delete the ACLs that match filters, and return the deleted ACLs of each filter."""
    broker = context.broker
    _check_configured(broker, "No Authorizer is configured.")
    steps = finding(broker.state.acls, request.filters)
    results, gone = await broker.work.finish("DeleteAcls", steps)
    await _decided(broker, DeleteAcls(tuple(gone)))
    return {"filter_results": results}


def finding(
    acls: AclTable, filters: "Sequence[requests.DeleteAclsRequest.DeleteAclsFilter]"
) -> "Steps[tuple[list[responses.DeleteAcls.DeleteAclsFilterResult], dict[AclBinding, None]]]":
    """Return the answer to each filter, and all ACLs that match.

    Raises InvalidRequest for too many matches, or too many filters that scan all ACLs.
    """
    results: list[responses.DeleteAcls.DeleteAclsFilterResult] = []
    gone: dict[AclBinding, None] = {}
    counter = StepCounter()
    scans = matches = 0
    for asked in filters:
        if counter.ends_step():
            yield
        wanted = _filter_of(asked)
        try:
            wanted.check()
        except KafkaError as error:
            results.append({**code_and_message(error), "matching_acls": []})
            continue
        scans += wanted.only is None
        if scans > SCANS_MAX:
            raise InvalidRequest(f"At most {SCANS_MAX} filters at a time may match several ACLs.")
        found = yield from acls.matching(wanted, counter)
        matches += len(found)
        if matches > DELETED_MAX:
            raise InvalidRequest(f"At most {DELETED_MAX} ACLs are removed at a time.")
        gone.update(dict.fromkeys(found))
        described = yield from made(_matching, found)
        results.append({**NO_ERROR, "matching_acls": described})
    return results, gone


def _matching(acl: AclBinding) -> "responses.DeleteAcls.DeleteAclsMatchingAcl":
    return {
        **NO_ERROR,
        "resource_type": acl.resource_type,
        "resource_name": acl.name,
        "pattern_type": acl.pattern_type,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


async def _decided(broker: BrokerServices, command: CreateAcls | DeleteAcls) -> Result:
    """Submit a command, and return its result when all live brokers have applied it."""
    if not command.acls:
        return Result()
    timeout_ms = broker.config.request_timeout_ms
    result = await broker.controller.submit(command, timeout_ms=timeout_ms)
    if result.error:
        raise error_for(result.error, result.message)
    await broker.metadata_barrier.wait(result.index, timeout_ms=timeout_ms)
    return result


def _no_acls(refused: Any, error: KafkaError) -> Any:
    return {**code_and_message(error), "matching_acls": []}


def apis() -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    altering = (on_cluster(AclOperation.ALTER),)
    return (
        control_api(
            api_keys.DESCRIBE_ACLS,
            (1, 3),
            describe_acls,
            code_with_message,
            rights=(on_cluster(AclOperation.DESCRIBE),),
            answer_bytes=_described_bytes,
        ),
        control_api(
            api_keys.CREATE_ACLS,
            (1, 3),
            create_acls,
            of_each("results", "creations", code_with_message),
            rights=altering,
        ),
        control_api(
            api_keys.DELETE_ACLS,
            (1, 3),
            delete_acls,
            of_each("filter_results", "filters", _no_acls),
            rights=altering,
        ),
    )
