"""Checks of configurations before they are proposed.

The packages storage and node know the valid values of a key, and pass the checks as functions.
Refused topics and resources are removed from the command and answered immediately, while the others
are proposed. These are pure functions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ...runtime.sliced_work import Steps
from ...runtime.steps import made
from ...wire.errors import (
    InvalidConfig,
    InvalidRequest,
    KafkaError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from .cluster_tables import ClusterTables
from .commands import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    AlterConfigs,
    Command,
    CreateTopics,
    NewTopic,
    ResourceConfigs,
)
from .results import Item, Result
from .rules.configs import changed_configs
from .topic_names import why_invalid

VALIDATED_A_STEP = 8  # each takes about 0.1 ms
Validate = Callable[[Mapping[str, str]], object]  # raises InvalidConfig, InvalidRequest


@dataclass(frozen=True, slots=True)
class ConfigValidators:
    """The checks of configs for each type of resource."""

    topic: Validate
    broker: Validate
    group: Validate
    client_metrics: Validate


def refuse_invalid_configs(
    tables: ClusterTables, command: Command, validators: ConfigValidators
) -> Steps[tuple[Command, dict[object, Item]]]:
    """Return the command without refused items, and the errors of refused items by `item_key`.

    Changes are judged by the resulting configs in this node's metadata, which may be outdated.
    Configs of a topic that is unknown here, or is created again, are checked without existing
    configs. TOPIC_ALREADY_EXISTS takes precedence over an invalid config, as in Kafka.
    """
    refused: dict[object, Item] = {}
    if isinstance(command, CreateTopics):
        for number, topic in enumerate(command.topics, 1):
            if not why_invalid(topic.name):  # the controller reports invalid names
                item = Item(name=topic.name)
                taken = TopicAlreadyExists(f"Topic '{topic.name}' already exists.")
                known = taken if topic.name in tables.topics else None
                _validate(validators.topic, topic.configs, item, refused, known)
            if number % VALIDATED_A_STEP == 0:
                yield
        kept = tuple(topic for topic in command.topics if (0, topic.name) not in refused)
        return replace(command, topics=kept), refused
    if isinstance(command, AlterConfigs):
        for number, resource in enumerate(command.resources, 1):
            validate, configs = _outcome(tables, resource, validators)
            item = Item(name=resource.name, resource_type=resource.resource_type)
            if validate is not None:
                _validate(validate, configs, item, refused, _absence(tables, resource))
            if number % VALIDATED_A_STEP == 0:
                yield
        kept = tuple(r for r in command.resources if (r.resource_type, r.name) not in refused)
        return replace(command, resources=kept), refused
    return command, refused


def with_refusals(
    command: Command, result: Result, refused: Mapping[object, Item]
) -> Steps[Result]:
    """Return the result with the errors of refused items added, in the order of the command."""
    if not refused:
        return result
    known = yield from made(item_key, result.items)
    by_key = dict(zip(known, result.items, strict=True)) | dict(refused)
    keys: list[object] = []
    if isinstance(command, CreateTopics):
        keys = yield from made(_key_of_topic, command.topics)
    elif isinstance(command, AlterConfigs):
        keys = yield from made(_key_of_resource, command.resources)
    items = yield from made(by_key.get, dict.fromkeys(keys))
    return replace(result, items=tuple(filter(None, items)))


def _key_of_topic(topic: NewTopic) -> object:
    return 0, topic.name


def _key_of_resource(resource: ResourceConfigs) -> object:
    return resource.resource_type, resource.name


def item_key(item: Item) -> object:
    """Return the resource type and the name of an item, as its key in a dictionary."""
    return (item.resource_type, item.name)


def _outcome(
    tables: ClusterTables, resource: ResourceConfigs, validators: ConfigValidators
) -> tuple[Validate | None, Mapping[str, str]]:
    if resource.resource_type == TOPIC_RESOURCE:
        topic = tables.topics.get(resource.name)
        return validators.topic, changed_configs(topic.configs if topic else {}, resource)
    if resource.resource_type == BROKER_RESOURCE:
        configs = changed_configs(tables.broker_configs.get(resource.name, {}), resource)
        return validators.broker, configs
    if resource.resource_type in (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE):
        is_group = resource.resource_type == GROUP_RESOURCE
        before = tables.named_configs(resource.resource_type).get(resource.name, {})
        validate = validators.group if is_group else validators.client_metrics
        return validate, changed_configs(before, resource)
    return None, {}


def _absence(tables: ClusterTables, resource: ResourceConfigs) -> KafkaError | None:
    if resource.resource_type != TOPIC_RESOURCE or resource.name in tables.topics:
        return None
    return UnknownTopicOrPartition(f"The topic '{resource.name}' does not exist.")


def _validate(
    validate: Validate,
    configs: Mapping[str, str],
    item: Item,
    refused: dict[object, Item],
    known: KafkaError | None,
) -> None:
    try:
        validate(configs)
    except (InvalidConfig, InvalidRequest) as error:
        refused[item_key(item)] = item.refused(known or error)
