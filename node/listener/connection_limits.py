"""How many connections a broker takes, as set while it runs, else by its file (KIP-402's keys)."""

from collections.abc import Mapping

from ...coordinator.metadata.cluster_model import Changes
from ...coordinator.metadata.cluster_state import ClusterState
from ..config.broker_config import BROKER_KEYS, BrokerConfig
from ..config.dynamic import dynamic_configs


class ConnectionLimits:
    """`in_all`, and `of_one_address`. Connections that are there stay when a limit falls."""

    def __init__(self, state: ClusterState, config: BrokerConfig) -> None:
        self._state, self._config = state, config
        self._look()
        state.on_change(self._changed)

    def _changed(self, changes: Changes) -> None:
        own = self._config.node_id in changes.broker_configs_changed
        if own or changes.cluster_configs_changed:
            self._look()

    def _look(self) -> None:
        given = dynamic_configs(self._config, self._state.broker_configs)
        self.in_all = _limit(given, "max.connections", self._config.max_connections)
        self.of_one_address = _limit(
            given, "max.connections.per.ip", self._config.max_connections_per_ip
        )


def _limit(given: Mapping[str, str], name: str, otherwise: int) -> int:
    return BROKER_KEYS[name].parse(given[name]) if name in given else otherwise
