"""The APIs to describe and change configurations of topics, brokers and groups.

DescribeConfigs 1-4          v1 synonyms (KIP-226), v3 types and docs (KIP-569).
AlterConfigs 0-2             replaces all of a resource's configs; kept for old clients.
IncrementalAlterConfigs 0-1  changes single keys: set, delete, append, subtract (KIP-339).

Topics accept the configs that the storage applies. Others are refused with the reason. A running
broker accepts changes of four kinds of keys: defaults of topics, limits of connections, rates of
throttled replication, and keys of Kafka that have no effect here (node/config/tuning_keys.py). Each
is set for all brokers (an empty resource name) or for one. Groups accept the configs of consumer
groups, within the broker's bounds. Subscriptions to metrics of clients are stored, but clients are
never asked for metrics. Loggers are Python's loggers of the broker that receives the request.
Difference from Kafka: an unknown key of a broker is an error, while Kafka stores it.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from ....coordinator.metadata.cluster_tables import WHOLE_CLUSTER
from ....coordinator.metadata.commands import (
    APPEND,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    DELETE,
    GROUP_RESOURCE,
    SET,
    SUBTRACT,
    TOPIC_RESOURCE,
    AlterConfigs,
    ConfigOperation,
    ResourceConfigs,
)
from ....coordinator.metadata.results import Item
from ....coordinator.metadata.topic_names import why_invalid
from ....runtime.steps import Steps, made
from ....storage.topic_configs import TOPIC_CONFIGS, ConfigType
from ....wire.acls import AclOperation, ResourceType
from ....wire.errors import (
    InvalidConfig,
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    UnknownTopicOrPartition,
    error_for,
)
from ....wire.framing import RequestHeader
from ....wire.messages import api_keys, requests, responses
from ....wire.messages.schema_encoder import Each
from ...config.broker_config import BROKER_KEYS
from ...config.dynamic import topic_defaults_in_force
from ...config.group_configs import GROUP_KEYS
from ...config.tuning_keys import without_effect
from ...listener.dispatch import Api, RequestContext, control_api
from ...security.rights import CLUSTER, EachItem, Resource
from ...services import BrokerServices
from ..answers import NO_ERROR, code_and_message, entries_bytes, of_each
from .config_entries import (
    CONFIGS_MAX,
    LOGGER,
    MIN_IN_SYNC,
    Entry,
    Synonym,
    as_parsed,
    broker_entries,
    client_metrics_entries,
    dynamic_cluster_entries,
    effective_topic_configs,
    group_entries,
    logger_entries,
    node_id_of,
)
from .logger_levels import alter_logger_levels, logger_count

logger = logging.getLogger(__name__)
LOGGER_RESOURCE = 8
OPERATION_NAMES = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}
SORTED_A_STEP = 25  # each resource costs several lookups and checks
if TYPE_CHECKING:
    _Described = requests.DescribeConfigsRequest.DescribeConfigsResource
    _Incremental = requests.IncrementalAlterConfigsRequest.AlterConfigsResource
    _Altered = requests.AlterConfigsRequest.AlterConfigsResource | _Incremental
Altered = TypeVar("Altered", bound="_Altered")


def describe_configs(
    context: RequestContext, header: RequestHeader, request: "requests.DescribeConfigsRequest"
) -> "responses.DescribeConfigs.Response":
    """Return the requested configs of each resource, or all if the request names none."""
    with_docs = getattr(request, "include_documentation", False)

    def describe(resource: "_Described") -> "responses.DescribeConfigs.DescribeConfigsResult":
        try:
            entries = _entries_of(context.broker, resource)
        except KafkaError as error:
            return _undescribed(resource, error)
        asked = set(resource.configuration_keys or ())
        configs = [
            _entry_values(entry, request.include_synonyms, with_docs)
            for entry in entries
            if not asked or entry.name in asked
        ]
        return {
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            "configs": configs,
        }

    return {"results": Each(describe, request.resources)}


def _described_bytes(
    context: RequestContext, request: "requests.DescribeConfigsRequest"
) -> Steps[int]:
    topics = context.broker.state.topics

    def count(resource: "_Described") -> int:
        if resource.resource_type == BROKER_RESOURCE:
            return len(BROKER_KEYS)
        if resource.resource_type == GROUP_RESOURCE:
            return len(GROUP_KEYS)
        if resource.resource_type == LOGGER_RESOURCE:
            return logger_count()
        return len(TOPIC_CONFIGS) if resource.resource_name in topics else 1

    return entries_bytes(count, request.resources)


def _entries_of(broker: BrokerServices, resource: "_Described") -> list[Entry]:
    name = resource.resource_name
    if resource.resource_type == TOPIC_RESOURCE:
        if reason := why_invalid(name):
            raise InvalidTopicException(reason)
        topic = broker.state.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition
        return list(map(as_parsed, effective_topic_configs(broker, topic.configs)))
    if resource.resource_type == BROKER_RESOURCE:
        if name == WHOLE_CLUSTER:
            return dynamic_cluster_entries(broker)
        if node_id_of(name) != broker.node_id:
            raise InvalidRequest(
                f"Unexpected broker id, expected {broker.node_id} or empty string, "
                f"but received {name}"
            )
        return list(map(as_parsed, broker_entries(broker)))
    if resource.resource_type == GROUP_RESOURCE:
        if not name:
            raise InvalidRequest("Group name must not be empty")
        return list(map(as_parsed, group_entries(broker, name)))
    if resource.resource_type == CLIENT_METRICS_RESOURCE:
        if not name:
            raise InvalidRequest("Client metrics subscription name must not be empty")
        return client_metrics_entries(broker, name)
    if resource.resource_type == LOGGER_RESOURCE:
        if not name:
            raise InvalidRequest("Broker id must not be empty")
        if node_id_of(name) != broker.node_id:
            raise InvalidRequest(
                f"Unexpected broker id, expected {broker.node_id} but received {name}"
            )
        return logger_entries()
    raise InvalidRequest(f"Unsupported resource type: {resource.resource_type}")


def _entry_values(
    entry: Entry, with_synonyms: bool, with_docs: bool
) -> "responses.DescribeConfigs.DescribeConfigsResourceResult":
    return {
        "name": entry.name,
        "value": entry.value,
        "read_only": entry.is_read_only,
        "config_source": entry.source,
        "is_sensitive": entry.type == ConfigType.PASSWORD,
        "synonyms": [_synonym(each) for each in entry.synonyms] if with_synonyms else [],
        "config_type": entry.type,
        "documentation": entry.doc if with_docs or entry.source == LOGGER else None,
    }


def _synonym(synonym: Synonym) -> "responses.DescribeConfigs.DescribeConfigsSynonym":
    return {"name": synonym.name, "value": synonym.value, "source": synonym.source}


async def alter_configs(
    context: RequestContext, header: RequestHeader, request: "requests.AlterConfigsRequest"
) -> "responses.AlterConfigs.Response":
    """Replace all configs of each resource."""

    def wanted(resource: "_Altered") -> ResourceConfigs:
        _check_count(resource)
        operations = [ConfigOperation(c.name, SET, c.value) for c in resource.configs]
        return _checked(context.broker, resource, operations, replaces_all=True)

    return await _alter(context, request.resources, request.validate_only, wanted)


async def incremental_alter_configs(
    context: RequestContext,
    header: RequestHeader,
    request: "requests.IncrementalAlterConfigsRequest",
) -> "responses.IncrementalAlterConfigs.Response":
    """Change some keys of each resource."""

    defaults_of = cache(partial(_list_defaults, context.broker))

    def wanted(resource: "_Incremental") -> ResourceConfigs | None:
        _check_count(resource)
        if resource.resource_type == LOGGER_RESOURCE:
            _alter_loggers(context.broker, resource, request.validate_only)
            return None
        defaults = defaults_of(resource.resource_type)
        operations = []
        for config in resource.configs:
            operation = config.config_operation
            if operation not in (SET, DELETE, APPEND, SUBTRACT):
                raise InvalidRequest(f"Unknown operations type {operation}")
            if operation in OPERATION_NAMES and config.name not in defaults:
                raise InvalidConfig(
                    f"Can't {OPERATION_NAMES[operation]} to key {config.name} because its type "
                    f"is not LIST."
                )
            operations.append(
                ConfigOperation(config.name, operation, config.value, defaults.get(config.name, ""))
            )
        return _checked(context.broker, resource, operations)

    return await _alter(context, request.resources, request.validate_only, wanted)


async def _alter(
    context: RequestContext,
    resources: Sequence[Altered],
    validate_only: bool,
    wanted: Callable[[Altered], ResourceConfigs | None],
) -> "responses.AlterConfigs.Response":
    """Check each resource, submit the valid ones, and answer in the order of the request.

    wanted: returns the changes to submit, or None if there are none.
    """
    times = Counter((r.resource_type, r.resource_name) for r in resources)
    outcomes: dict[tuple[int, str], KafkaError | None] = {}
    changes: list[ResourceConfigs] = []

    def sort(resource: Altered) -> None:
        key = (resource.resource_type, resource.resource_name)
        try:
            if times[key] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            change = wanted(resource)
            if change is None:
                outcomes[key] = None
            else:
                changes.append(change)
        except KafkaError as error:
            outcomes[key] = error

    broker = context.broker
    await broker.work.finish("configurations", made(sort, resources, SORTED_A_STEP))
    if changes:
        result = await broker.controller.submit(
            AlterConfigs(tuple(changes), validate_only),
            timeout_ms=broker.config.request_timeout_ms,
        )

        def settled(change: ResourceConfigs) -> None:
            failed = error_for(result.error, result.message) if result.error else None
            outcomes[change.resource_type, change.name] = failed

        def refused(item: Item) -> None:
            if item.error:
                outcomes[item.resource_type, item.name] = error_for(item.error, item.message)

        await broker.work.finish("configurations", made(settled, changes))
        await broker.work.finish("configurations", made(refused, result.items))

    def outcome(resource: Altered) -> "responses.AlterConfigs.AlterConfigsResourceResponse":
        return _response(resource, outcomes[resource.resource_type, resource.resource_name])

    return {"responses": Each(outcome, resources)}


def _alter_loggers(broker: BrokerServices, resource: "_Incremental", validate_only: bool) -> None:
    if node_id_of(resource.resource_name) != broker.node_id:
        raise InvalidRequest(
            f"Unexpected broker id, expected {broker.node_id}, but received "
            f"{resource.resource_name}"
        )
    _check_keys(
        operations := [
            ConfigOperation(each.name, each.config_operation, each.value)
            for each in resource.configs
        ]
    )
    alter_logger_levels(operations, validate_only=validate_only)


def _check_count(resource: "_Altered") -> None:
    if len(resource.configs) > CONFIGS_MAX:
        raise InvalidRequest(f"At most {CONFIGS_MAX} configs of a resource can be changed at once.")


def _checked(
    broker: BrokerServices,
    resource: "_Altered",
    operations: Sequence[ConfigOperation],
    *,
    replaces_all: bool = False,
) -> ResourceConfigs:
    """Check a resource's changes before they are submitted, and return them."""
    _check_keys(operations)
    name = resource.resource_name
    if resource.resource_type == BROKER_RESOURCE:
        # Deleting an unset key succeeds, as in Kafka, whose tools end a reassignment by deleting
        # the throttles of each broker.
        given = [operation.key for operation in operations if operation.operation != DELETE]
        if name != WHOLE_CLUSTER and node_id_of(name) != broker.node_id:
            raise InvalidRequest(
                f"Unexpected broker id, expected {broker.node_id}, but received {name}"
            )
        fixed = [key for key in given if key in BROKER_KEYS and not BROKER_KEYS[key].is_dynamic]
        if fixed:
            raise InvalidRequest(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
        _check_min_in_sync(broker, name, operations, replaces_all)
        if (words := without_effect(given)) is not None:
            logger.info("%s", words)
    elif resource.resource_type == TOPIC_RESOURCE:
        if reason := why_invalid(name):
            raise InvalidTopicException(reason)
    elif resource.resource_type not in (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE):
        raise InvalidRequest(f"Unknown resource type {resource.resource_type}")
    return ResourceConfigs(resource.resource_type, name, tuple(operations), replaces_all)


def _check_min_in_sync(
    broker: BrokerServices, name: str, operations: Sequence[ConfigOperation], replaces_all: bool
) -> None:
    """Refuse changes of min.insync.replicas that Kafka refuses while ELR (KIP-966) is enabled."""
    named = {operation.key: operation.operation for operation in operations}
    if name != WHOLE_CLUSTER:
        if MIN_IN_SYNC in named:
            raise InvalidConfig(
                f"Broker-level {MIN_IN_SYNC} cannot be altered while ELR is enabled."
            )
        return
    if (replaces_all and MIN_IN_SYNC not in named) or named.get(MIN_IN_SYNC) == DELETE:
        raise InvalidConfig(f"Cluster-level {MIN_IN_SYNC} cannot be removed while ELR is enabled.")


def _check_keys(operations: Sequence[ConfigOperation]) -> None:
    keys = [operation.key for operation in operations]
    if len(set(keys)) != len(keys):
        raise InvalidRequest("Error due to duplicate config keys")
    nulls = [o.key for o in operations if o.value is None and o.operation != DELETE]
    if nulls:
        raise InvalidRequest(f"Null value not supported for : {', '.join(nulls)}")


def _list_defaults(broker: BrokerServices, resource_type: int) -> dict[str, str]:
    """Return the default of each key of type list, to which an append adds if the key is unset."""
    if resource_type == GROUP_RESOURCE:
        return {
            name: row.key.default or ""
            for name, row in GROUP_KEYS.items()
            if row.key.type == ConfigType.LIST
        }
    if resource_type == CLIENT_METRICS_RESOURCE:  # these keys cannot be appended to, as in Kafka
        return {}
    if resource_type != TOPIC_RESOURCE:
        return {
            name: key.default or ""
            for name, key in BROKER_KEYS.items()
            if key.type == ConfigType.LIST
        }
    defaults = topic_defaults_in_force(broker.config, broker.state.broker_configs)
    return {
        name: defaults.get(name, row.default)
        for name, row in TOPIC_CONFIGS.items()
        if row.type == ConfigType.LIST
    }


def _response(
    resource: "_Altered", error: KafkaError | None
) -> "responses.AlterConfigs.AlterConfigsResourceResponse":
    return {
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        **(code_and_message(error) if error else NO_ERROR),
    }


def _undescribed(
    resource: "_Described", error: KafkaError
) -> "responses.DescribeConfigs.DescribeConfigsResult":
    return {
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        **code_and_message(error),
    }


def _on_each_resource(operation: AclOperation) -> EachItem:
    """Return the right to an operation on each resource of a request.

    Topics and groups require the right on themselves, and all other resources on the cluster.
    """
    types = {TOPIC_RESOURCE: ResourceType.TOPIC, GROUP_RESOURCE: ResourceType.GROUP}

    def resource(state: object, request: object, item: Any) -> Resource:
        resource_type = types.get(item.resource_type)
        return CLUSTER if resource_type is None else (resource_type, item.resource_name)

    return EachItem(operation, (*types.values(), ResourceType.CLUSTER), "resources", resource)


def apis() -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    altering = (_on_each_resource(AclOperation.ALTER_CONFIGS),)
    unaltered = of_each("responses", "resources", _response)
    return (
        control_api(
            api_keys.DESCRIBE_CONFIGS,
            (1, 4),
            describe_configs,
            of_each("results", "resources", _undescribed),
            rights=(_on_each_resource(AclOperation.DESCRIBE_CONFIGS),),
            answer_bytes=_described_bytes,
        ),
        control_api(api_keys.ALTER_CONFIGS, (0, 2), alter_configs, unaltered, rights=altering),
        control_api(
            api_keys.INCREMENTAL_ALTER_CONFIGS,
            (0, 1),
            incremental_alter_configs,
            unaltered,
            rights=altering,
        ),
    )
