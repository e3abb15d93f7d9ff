"""The configuration of each consumer group: its own, or the broker's."""

from ...coordinator.groups.consumer.settings import ConsumerGroupSettings
from ...coordinator.metadata.cluster_state import ClusterState
from ..config.broker_config import BrokerConfig
from ..config.group_configs import consumer_group_settings


class ConsumerSettingsByGroup:
    """Says what applies to a group; most have no configurations of their own."""

    def __init__(self, config: BrokerConfig, state: ClusterState) -> None:
        self._config = config
        self._state = state
        self._default = consumer_group_settings(config, {})

    def of(self, group_id: str) -> ConsumerGroupSettings:
        """Return what applies now."""
        configs = self._state.group_configs.get(group_id)
        return consumer_group_settings(self._config, configs) if configs else self._default
