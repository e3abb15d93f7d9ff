"""The APIs of the cluster and its brokers.

ApiVersions 0-5      KIP-35; v3 carries the client's name (KIP-511), v4 includes features whose
                     lowest level is 0, v5 has the cluster and broker that the client means
                     (KIP-1242). An unknown version is answered by the dispatcher (version 0,
                     error 35).
DescribeCluster 0-2  KIP-700; v1 endpoint types (KIP-919), v2 fenced brokers (KIP-1073).
UnregisterBroker 0   KIP-631; removes the registration of a stopped broker.
ListConfigResources 0-1  KIP-1142: all resources with configs; v0 has client metrics only.

The supported features (KIP-584) are in `features.py`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TypedDict

from ....coordinator.metadata.cluster_model import BrokerRegistration
from ....coordinator.metadata.commands import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    UnregisterBroker,
)
from ....runtime.steps import Steps
from ....wire.acls import SUPPORTED_OPERATIONS, AclOperation, ResourceType, operation_bits
from ....wire.errors import ErrorCode, UnsupportedVersion, error_for
from ....wire.framing import Buffer, RequestHeader
from ....wire.messages import api_keys, control, requests, responses
from ...listener.dispatch import Api, RequestContext, control_api
from ...listener.request_context import ServedApi
from ...security.rights import OPEN, on_cluster
from ..answers import code_only, code_with_message, entries_bytes
from .configs import LOGGER_RESOURCE
from .features import shown_features

NOT_ASKED = -(2**31)
NOBODY = -1
ALL_OPERATIONS = {each: operation_bits(some) for each, some in SUPPORTED_OPERATIONS.items()}
BROKER_ENDPOINT, CONTROLLER_ENDPOINT = 1, 2
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")
SOFTWARE_FROM = 3


class Address(TypedDict):
    """The host, port and rack of a broker, under the names that the answers of all APIs use."""

    host: str
    port: int
    rack: str | None


def api_versions() -> Api:
    """Return the row of ApiVersions, which answers with the table of APIs.

    The answer depends only on the version and the levels of features, so the answer is cached by
    version and levels.
    """
    encoded: dict[int, tuple[int, bytes]] = {}

    def handle(context: RequestContext, header: RequestHeader, body: memoryview) -> list[Buffer]:
        version = header.api_version
        request = control.decode_request(api_keys.API_VERSIONS, version, body)
        if version >= SOFTWARE_FROM:
            software = (request.client_software_name, request.client_software_version)
            error = _refusal(context, request)
            if not all(map(SOFTWARE.match, software)):
                error = ErrorCode.INVALID_REQUEST
            if error:
                refusal: responses.ApiVersions.Response = {"error_code": error}
                return [control.encode_response(api_keys.API_VERSIONS, version, refusal)]
            context.client_software = software
        epoch = context.broker.state.features_epoch
        known_epoch, answer = encoded.get(version, (-1, b""))
        if known_epoch != epoch:
            values = _versions(context.table) | shown_features(context.broker, version)
            answer = control.encode_response(api_keys.API_VERSIONS, version, values)
            encoded[version] = epoch, answer
        return [answer]

    return Api(api_keys.API_VERSIONS, 0, 5, handle, rights=OPEN)


def _refusal(context: RequestContext, request: "requests.ApiVersionsRequest") -> int:
    """Return the error for a client that names the cluster and broker that it means (KIP-1242).

    REBOOTSTRAP_REQUIRED: the client means another cluster or broker. INVALID_REQUEST: it names only
    one of the two. NONE: it means this broker, or names neither.
    """
    cluster_id, node_id = getattr(request, "cluster_id", None), getattr(request, "node_id", NOBODY)
    if cluster_id is None and node_id == NOBODY:
        return ErrorCode.NONE
    if cluster_id is None or node_id == NOBODY:
        return ErrorCode.INVALID_REQUEST
    broker = context.broker
    is_meant = (cluster_id, node_id) == (broker.state.cluster_id, broker.config.node_id)
    return ErrorCode.NONE if is_meant else ErrorCode.REBOOTSTRAP_REQUIRED


def _versions(table: Mapping[int, ServedApi]) -> "responses.ApiVersions.Response":
    return {
        "api_keys": [
            {
                "api_key": api.key,
                "min_version": (
                    api.min_version if api.advertised_from is None else api.advertised_from
                ),
                "max_version": api.max_version,
            }
            for _, api in sorted(table.items())
        ]
    }


def describe_cluster(
    context: RequestContext, header: RequestHeader, request: "requests.DescribeClusterRequest"
) -> "responses.DescribeCluster.Response":
    """Return the brokers, and the controller to which administrative requests are sent."""
    endpoint_type = getattr(request, "endpoint_type", BROKER_ENDPOINT)
    if endpoint_type == CONTROLLER_ENDPOINT:
        raise error_for(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of "
            "type CONTROLLER",
        )
    if endpoint_type != BROKER_ENDPOINT:
        raise error_for(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}"
        )
    state = context.broker.state
    with_fenced = getattr(request, "include_fenced_brokers", False)
    return {
        "cluster_id": state.cluster_id,
        "controller_id": context.broker.controller_id,
        "brokers": [
            {
                "broker_id": broker.node_id,
                **address,
                "is_fenced": broker.is_fenced,
            }
            for broker in in_order(state.brokers)
            if (with_fenced or not broker.is_fenced)
            and (address := address_of(broker, context.listener)) is not None
        ],
        "cluster_authorized_operations": (
            cluster_operations(context)
            if request.include_cluster_authorized_operations
            else NOT_ASKED
        ),
    }


def cluster_operations(context: RequestContext) -> int:
    """Return the client's operations on the cluster as bits (KIP-430), 0 without DESCRIBE."""
    if context.broker.authorizer is None:
        return ALL_OPERATIONS[ResourceType.CLUSTER]
    access = context.access
    if not access.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return access.operations(ResourceType.CLUSTER)


def operations_on(context: RequestContext, resource_type: ResourceType, name: str) -> int:
    """Return the client's operations on a resource as bits (KIP-430)."""
    if context.broker.authorizer is None:
        return ALL_OPERATIONS[resource_type]
    return context.access.operations(resource_type, name)


def list_config_resources(
    context: RequestContext, header: RequestHeader, request: "requests.ListConfigResourcesRequest"
) -> "responses.ListConfigResources.Response":
    """Return the names of the resources of the requested types.

    These are all topics and brokers, and the groups and metrics subscriptions with configs.
    """
    state = context.broker.state
    nodes = list(map(str, state.brokers))
    named: dict[int, Iterable[str]] = {
        TOPIC_RESOURCE: state.topics,
        BROKER_RESOURCE: nodes,
        LOGGER_RESOURCE: nodes,
        CLIENT_METRICS_RESOURCE: state.client_metrics_configs,
        GROUP_RESOURCE: state.group_configs,
    }
    asked = set(getattr(request, "resource_types", ())) or set(named)
    if header.api_version == 0:
        asked = {CLIENT_METRICS_RESOURCE}
    if asked - set(named):
        raise UnsupportedVersion
    return {
        "config_resources": [
            {"resource_type": kind, "resource_name": name}
            for kind, names in named.items()
            if kind in asked
            for name in names
        ]
    }


def _resources_bytes(
    context: RequestContext, request: "requests.ListConfigResourcesRequest"
) -> Steps[int]:
    state = context.broker.state
    return entries_bytes(len, [state.topics, state.group_configs, state.client_metrics_configs])


def in_order(brokers: Mapping[int, BrokerRegistration]) -> Iterable[BrokerRegistration]:
    """Return the registered brokers in the order of their ids."""
    return (brokers[node] for node in sorted(brokers))


def address_of(broker: BrokerRegistration, listener: str) -> Address | None:
    """Return a broker's address on a listener, or None if the broker lacks the listener."""
    endpoint = broker.endpoint(listener)
    if endpoint is None:
        return None
    return {"host": endpoint[0], "port": endpoint[1], "rack": broker.rack or None}


async def unregister_broker(
    context: RequestContext, header: RequestHeader, request: "requests.UnregisterBrokerRequest"
) -> "responses.UnregisterBroker.Response":
    """Remove the registration of a stopped broker, which may register again."""
    broker = context.broker
    timeout_ms = broker.config.request_timeout_ms
    command = UnregisterBroker(request.broker_id)
    result = await broker.controller.submit(command, timeout_ms=timeout_ms)
    if result.error:
        raise error_for(result.error, result.message)
    return {"error_message": None}


def apis() -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    return (
        api_versions(),
        control_api(
            api_keys.DESCRIBE_CLUSTER, (0, 2), describe_cluster, code_with_message, rights=OPEN
        ),
        control_api(
            api_keys.UNREGISTER_BROKER,
            (0, 0),
            unregister_broker,
            code_with_message,
            rights=(on_cluster(AclOperation.ALTER),),
        ),
        control_api(
            api_keys.LIST_CONFIG_RESOURCES,
            (0, 1),
            list_config_resources,
            code_only,
            rights=(on_cluster(AclOperation.DESCRIBE_CONFIGS),),
            answer_bytes=_resources_bytes,
        ),
    )
