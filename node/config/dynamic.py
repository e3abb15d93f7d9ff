"""Dynamic configurations of brokers (KIP-226): the effective values, and their validation."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from ...coordinator.metadata.cluster_tables import WHOLE_CLUSTER
from ...coordinator.metadata.config_checks import ConfigValidators, Validate
from ...wire.errors import InvalidConfig, InvalidRequest
from .broker_config import BROKER_KEYS, BrokerConfig
from .client_metrics import judge_client_metrics_configs
from .group_configs import judge_group_configs


def topic_defaults_in_force(
    config: BrokerConfig, broker_configs: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """Return the effective defaults of topic configs by name.

    broker_configs: the dynamic configs of brokers in the replicated metadata.
    """
    dynamic = dynamic_configs(config, broker_configs)
    return dict(config.topic_defaults) | {
        key.topic_config: value
        for name, value in dynamic.items()
        if (key := BROKER_KEYS.get(name)) is not None and key.topic_config is not None
    }


def dynamic_configs(
    config: BrokerConfig, broker_configs: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """Return the dynamic configs of the cluster, overridden by those of this broker."""
    return {
        **broker_configs.get(WHOLE_CLUSTER, {}),
        **broker_configs.get(str(config.node_id), {}),
    }


def value_in_force(
    config: BrokerConfig, broker_configs: Mapping[str, Mapping[str, str]], name: str
) -> Any:
    """Return the effective value of a dynamic key that is not a field of BrokerConfig."""
    key, texts = BROKER_KEYS[name], dynamic_configs(config, broker_configs)
    return key.parse(texts.get(name, config.static_values.get(name, key.default or "")))


def judge_dynamic_configs(configs: Mapping[str, str]) -> None:
    """Raise InvalidConfig for a key that is not dynamic, or InvalidRequest for an invalid value."""
    for name, value in configs.items():
        key = BROKER_KEYS.get(name)
        if key is None:
            raise InvalidConfig(f"Unknown config name: {name}")
        if not key.is_dynamic:
            raise InvalidConfig(f"Cannot update these configs dynamically: [{name}]")
        try:
            key.parse(value)
        except InvalidConfig as error:
            raise InvalidRequest(str(error)) from None


def config_validators(config: BrokerConfig, topic: Validate) -> ConfigValidators:
    """Return the functions that check configurations before this broker proposes them.

    topic: the function that checks the configs of topics.
    """
    return ConfigValidators(
        topic=topic,
        broker=judge_dynamic_configs,
        group=partial(judge_group_configs, config),
        client_metrics=judge_client_metrics_configs,
    )
