"""The changes of configurations of topics, brokers, groups and client metrics subscriptions.

The broker that receives a request checks the values (the packages storage and node have the tables
of keys). This file makes the change, and immediately applies settings that affect leaders. With a
smaller min.insync.replicas the high watermark may rise with a smaller ISR, so replicas outside the
ISR stop being eligible in the same command. If unclean elections become allowed, partitions without
a leader get a leader.
"""

from collections import Counter

from ....runtime.sliced_work import Steps
from ....wire.errors import (
    BrokerIdNotRegistered,
    InvalidConfig,
    InvalidRequest,
    KafkaError,
    PolicyViolation,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from ..cluster_tables import WHOLE_CLUSTER, ClusterTables
from ..commands import (
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
from ..results import Item, Result
from .partitions import partitions_of, settle_each

CONFIGURED_MAX = 1_000  # the limit of groups, and of client metrics subscriptions
NAME_BYTES_MAX = 1_000  # the limit for the name of a group or subscription
# The type's name, and the error for an empty resource name.
_NAMED_KINDS = {
    GROUP_RESOURCE: ("group", "Default group resources are not allowed."),
    CLIENT_METRICS_RESOURCE: ("subscription", "Subscription name can't be empty"),
}
# These decide about leaders of the cluster, so a single broker cannot have its own value.
CLUSTER_WIDE_ONLY = {
    "min.insync.replicas": "Broker-level min.insync.replicas cannot be altered while ELR is "
    "enabled.",
    "unclean.leader.election.enable": "unclean.leader.election.enable can be set for topics and "
    "for the whole cluster, not for a single broker.",
}


def alter_configs(tables: ClusterTables, command: AlterConfigs) -> Steps[Result]:
    """Alter the configs of each resource.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, BROKER_ID_NOT_REGISTERED, INVALID_REQUEST, INVALID_CONFIG,
    POLICY_VIOLATION (too many groups or subscriptions), UNSUPPORTED_VERSION (an unknown resource
    type).
    """
    named = Counter((resource.resource_type, resource.name) for resource in command.resources)
    items: list[Item] = []
    for resource in command.resources:
        yield
        item = Item(name=resource.name, resource_type=resource.resource_type)
        try:
            if named[resource.resource_type, resource.name] > 1:
                raise InvalidRequest(f"The resource {resource.name!r} is asked for twice.")
            yield from _alter(tables, resource, command.validate_only)
        except KafkaError as error:
            item = item.refused(error)
        items.append(item)
    return Result(items=tuple(items))


def _alter(tables: ClusterTables, resource: ResourceConfigs, validate_only: bool) -> Steps[None]:
    if resource.resource_type == TOPIC_RESOURCE:
        topic = tables.topics.get(resource.name)
        if topic is None:
            raise UnknownTopicOrPartition(f"The topic '{resource.name}' does not exist.")
        configs = changed_configs(topic.configs, resource)
        if not validate_only and configs != topic.configs:
            tables.put_topic_configs(topic.name, configs)
            yield from settle_each(tables, partitions_of(topic))
    elif resource.resource_type == BROKER_RESOURCE:
        _check_broker(tables, resource)
        before = tables.broker_configs.get(resource.name, {})
        configs = changed_configs(before, resource)
        if not validate_only and configs != before:
            tables.put_broker_configs(resource.name, configs)
            if resource.name == WHOLE_CLUSTER:
                for topic in tables.topics.values():
                    yield from settle_each(tables, partitions_of(topic))
                    yield
    elif resource.resource_type in _NAMED_KINDS:
        _alter_named(tables, resource, validate_only)
    else:
        raise UnsupportedVersion(
            f"There are no configs for the resource type {resource.resource_type}."
        )


def _alter_named(tables: ClusterTables, resource: ResourceConfigs, validate_only: bool) -> None:
    """Alter the configs of a group or subscription, even of one that does not exist."""
    kind, name = resource.resource_type, resource.name
    word, refusal = _NAMED_KINDS[kind]
    if not name:
        raise InvalidRequest(refusal)
    if len(name.encode()) > NAME_BYTES_MAX:
        raise InvalidRequest(f"A {word} with a name of over {NAME_BYTES_MAX} bytes has no configs.")
    known = tables.named_configs(kind)
    before = known.get(name, {})
    configs = changed_configs(before, resource)
    if configs and not before and len(known) >= CONFIGURED_MAX:
        raise PolicyViolation(f"At most {CONFIGURED_MAX} {word}s have configs of their own.")
    if not validate_only and configs != before:
        tables.put_named_configs(kind, name, configs)


def changed_configs(before: dict[str, str], resource: ResourceConfigs) -> dict[str, str]:
    """Return a resource's configs after its operations. `before` is not changed."""
    after = {} if resource.replaces_all else dict(before)
    for operation in resource.operations:
        value = _value_after(before.get(operation.key), operation)
        if value is None:
            after.pop(operation.key, None)
        else:
            after[operation.key] = value
    return after


def _value_after(before: str | None, operation: ConfigOperation) -> str | None:
    if operation.operation == SET:
        return operation.value
    if operation.operation == DELETE:
        return None
    members = (operation.list_default if before is None else before).split(",")
    given = (operation.value or "").split(",")
    if operation.operation == APPEND:
        members += [member for member in given if member not in members]
    elif operation.operation == SUBTRACT:
        members = [member for member in members if member not in given]
    return ",".join(member for member in members if member)


def _check_broker(tables: ClusterTables, resource: ResourceConfigs) -> None:
    if resource.name == WHOLE_CLUSTER:
        return
    if not (resource.name.isascii() and resource.name.isdigit()) or len(resource.name) > 10:
        raise InvalidRequest(f"{resource.name!r} is no broker id.")
    if int(resource.name) not in tables.brokers or str(int(resource.name)) != resource.name:
        raise BrokerIdNotRegistered(f"Broker {resource.name} is not registered.")
    for operation in resource.operations:
        if operation.key in CLUSTER_WIDE_ONLY and operation.operation != DELETE:
            raise InvalidConfig(CLUSTER_WIDE_ONLY[operation.key])
