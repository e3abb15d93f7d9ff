"""Configurations that change while brokers run: what holds, and what may be set (KIP-226)."""

from collections.abc import Mapping
from functools import partial

from ...coordinator.metadata.cluster_tables import WHOLE_CLUSTER
from ...coordinator.metadata.config_checks import ConfigValidators, Validate
from ...wire.errors import InvalidConfig
from .broker_config import BROKER_KEYS, BrokerConfig
from .group_configs import judge_group_configs


def topic_defaults_in_force(
    config: BrokerConfig, broker_configs: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """What topics get that set nothing themselves, by topic config names: for LogConfig.

    broker_configs: the dynamic configs of the replicated metadata.
    """
    dynamic = broker_configs.get(WHOLE_CLUSTER, {})
    return dict(config.topic_defaults) | {
        key.topic_config: value
        for name, value in dynamic.items()
        if (key := BROKER_KEYS.get(name)) is not None and key.topic_config is not None
    }


def judge_cluster_configs(configs: Mapping[str, str]) -> None:
    """Raise InvalidConfig unless these may be set for all brokers while they run."""
    for name, value in configs.items():
        key = BROKER_KEYS.get(name)
        if key is None:
            raise InvalidConfig(f"Unknown config name: {name}")
        if not key.is_dynamic:
            raise InvalidConfig(f"Cannot update these configs dynamically: [{name}]")
        key.parse(value)


def judge_broker_configs(configs: Mapping[str, str]) -> None:
    """Raise InvalidConfig for anything: what is dynamic here holds for the whole cluster."""
    if configs:
        raise InvalidConfig(
            f"{', '.join(sorted(configs))}: configs can be set for topics and for the whole "
            f"cluster (an empty broker name), not for a single running broker."
        )


def config_validators(config: BrokerConfig, topic: Validate) -> ConfigValidators:
    """Return how this broker judges configurations before they are proposed."""
    return ConfigValidators(
        topic=topic,
        broker=judge_broker_configs,
        cluster=judge_cluster_configs,
        group=partial(judge_group_configs, config),
    )
