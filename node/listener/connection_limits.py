"""The limits of a broker's connections, static or dynamic (the keys of KIP-402)."""

import logging
from collections.abc import Mapping
from typing import Any

from ...coordinator.metadata.cluster_model import Changes
from ...coordinator.metadata.cluster_state import ClusterState
from ...wire.errors import InvalidConfig
from ..config.broker_config import BROKER_KEYS, BrokerConfig
from ..config.dynamic import dynamic_configs
from ..config.listeners import is_loopback, plain_address

logger = logging.getLogger(__name__)


class ConnectionLimits:
    """The limits of all connections, and of connections from one address.

    Open connections stay open when a limit is lowered.
    """

    def __init__(self, state: ClusterState, config: BrokerConfig) -> None:
        self._state, self._config = state, config
        self._look()
        state.on_change(self._changed)

    def of_address(self, host: str) -> int | None:
        """Return the limit of one address, or None for loopback without a limit of its own."""
        own = self._of_hosts.get(plain_address(host)) if self._of_hosts else None
        return own if own is not None or is_loopback(host) else self._of_any

    def _changed(self, changes: Changes) -> None:
        own = self._config.node_id in changes.broker_configs_changed
        if own or changes.cluster_configs_changed:
            self._look()

    def _look(self) -> None:
        given = dynamic_configs(self._config, self._state.broker_configs)
        config = self._config
        self.in_all: int = _limit(given, "max.connections", config.max_connections)
        self._of_any: int = _limit(given, "max.connections.per.ip", config.max_connections_per_ip)
        overrides: tuple[str, ...] = _limit(
            given, "max.connections.per.ip.overrides", config.max_connections_per_ip_overrides
        )
        pairs = (each.rpartition(":") for each in overrides)
        self._of_hosts = {plain_address(host): int(count) for host, _, count in pairs}


def _limit(given: Mapping[str, str], name: str, otherwise: Any) -> Any:
    """Return the dynamic value, or the static value if the dynamic one is unset or invalid."""
    if name not in given:
        return otherwise
    try:
        return BROKER_KEYS[name].parse(given[name])
    except InvalidConfig as problem:
        logger.error("the dynamic config %s is invalid and is ignored: %s", name, problem)
        return otherwise
