"""The protection of each listener, with its certificates and its login mechanisms."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...coordinator.metadata.cluster_tables import ClusterTables
from ..config.broker_config import BrokerConfig
from .sasl.login import Mechanisms
from .sasl.mechanisms import sasl_mechanisms, token_verifiers
from .sasl.tokens import TokenVerifier
from .tls.credentials import TlsCredentials, tls_credentials


@dataclass(frozen=True, slots=True)
class Protection:
    """The TLS certificates, login mechanisms and token verifiers of listeners, by listener name.

    A listener without TLS or without SASL has no entry in the respective mapping.
    """

    tls: Mapping[str, TlsCredentials] = field(default_factory=dict)
    mechanisms: Mapping[str, Mechanisms] = field(default_factory=dict)
    tokens: Mapping[str, TokenVerifier] = field(default_factory=dict)

    @classmethod
    def of(
        cls, config: BrokerConfig, tables: ClusterTables, random_bytes: Callable[[int], bytes]
    ) -> "Protection":
        """Return the protection that a configuration describes, or raise InvalidConfig."""
        log = logging.getLogger("oncelog.server")
        tokens = token_verifiers(config, time.time, log)
        mechanisms = sasl_mechanisms(config, tables, random_bytes, tokens)
        return cls(tls_credentials(config, log), mechanisms, tokens)

    def refresh(self) -> None:
        """Reload changed files from the disk. This blocks, so it must be called in a thread."""
        for each in (*self.tls.values(), *self.tokens.values()):
            each.refresh()
