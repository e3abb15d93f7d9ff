"""What protects each listener: its certificates, and the mechanisms by which clients log in."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...coordinator.metadata.cluster_tables import ClusterTables
from ..config.broker_config import BrokerConfig
from .sasl.login import Mechanisms
from .sasl.mechanisms import sasl_mechanisms
from .tls.credentials import TlsCredentials, tls_credentials


@dataclass(frozen=True, slots=True)
class Protection:
    """By the name of a listener; a PLAINTEXT one is in neither table."""

    tls: Mapping[str, TlsCredentials] = field(default_factory=dict)
    mechanisms: Mapping[str, Mechanisms] = field(default_factory=dict)

    @classmethod
    def of(
        cls, config: BrokerConfig, tables: ClusterTables, random_bytes: Callable[[int], bytes]
    ) -> "Protection":
        """Return what a configuration asks for; raises InvalidConfig."""
        log = logging.getLogger("oncelog.server")
        return cls(tls_credentials(config, log), sasl_mechanisms(config, tables, random_bytes))
