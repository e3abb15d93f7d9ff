"""The SASL mechanisms of a listener and their users, from its configuration."""

import logging
from collections.abc import Callable, Mapping
from functools import partial

from ....coordinator.metadata.cluster_tables import ClusterTables
from ....coordinator.security.scram_changes import MECHANISM_IDS
from ....wire.errors import InvalidConfig
from ....wire.security.jaas import parse_jaas
from ....wire.security.oauthbearer_server import OauthbearerServer
from ....wire.security.sasl import PlainServer, SaslServer
from ....wire.security.scram_server import ScramCredential, ScramServer
from ....wire.security.secret import Secret
from ...config.broker_config import BrokerConfig
from ...config.listener_keys import ListenerSettings
from .login import Mechanisms
from .tokens import TokenVerifier

USER_OPTION = "user_"
NONCE_BYTES = 24


def sasl_mechanisms(
    config: BrokerConfig,
    tables: ClusterTables,
    random_bytes: Callable[[int], bytes],
    tokens: Mapping[str, TokenVerifier],
) -> dict[str, Mechanisms]:
    """Return the mechanisms of each listener with SASL by its name, or raise InvalidConfig."""
    secret = random_bytes(32)
    found: dict[str, Mechanisms] = {}
    for listener in config.endpoints:
        if listener.protocol.uses_sasl:
            settings = config.of_listener(listener)
            if not settings.sasl_enabled_mechanisms:
                raise InvalidConfig(
                    f"listener {listener.name} has logins, so sasl.enabled.mechanisms must name "
                    "at least one mechanism."
                )
            found[listener.name] = {
                name: _mechanism(
                    name, settings, tables, random_bytes, secret, tokens.get(listener.name)
                )
                for name in settings.sasl_enabled_mechanisms
            }
    return found


def token_verifiers(
    config: BrokerConfig, now_s: Callable[[], float], log: logging.Logger
) -> dict[str, TokenVerifier]:
    """Return the token verifier of each listener with OAUTHBEARER, or raise InvalidConfig."""
    return {
        listener.name: TokenVerifier(settings, now_s, log)
        for listener in config.endpoints
        if listener.protocol.uses_sasl
        and "OAUTHBEARER" in (settings := config.of_listener(listener)).sasl_enabled_mechanisms
    }


def _mechanism(
    name: str,
    settings: ListenerSettings,
    tables: ClusterTables,
    random_bytes: Callable[[int], bytes],
    secret: bytes,
    tokens: TokenVerifier | None,
) -> Callable[[], SaslServer]:
    if name == "PLAIN":
        return partial(PlainServer, plain_users(settings.plain_sasl_jaas_config))
    if name == "OAUTHBEARER":
        assert tokens is not None
        return partial(OauthbearerServer, tokens.verify)
    number = MECHANISM_IDS[name]

    def find(user: str) -> ScramCredential | None:
        return tables.scram_credentials.get(user, {}).get(number)

    return lambda: ScramServer(name, random_bytes(NONCE_BYTES).hex(), find, secret)


def plain_users(jaas: Secret) -> Mapping[str, Secret]:
    """Return the users and passwords in a JAAS configuration, or raise InvalidConfig."""
    if not jaas:
        raise InvalidConfig(
            "PLAIN needs listener.name.NAME.plain.sasl.jaas.config, with an option user_NAME for "
            "each user."
        )
    try:
        module, options = parse_jaas(jaas)
    except ValueError as problem:
        raise InvalidConfig(f"plain.sasl.jaas.config: {problem}") from None
    if module != "PlainLoginModule":
        raise InvalidConfig(f"plain.sasl.jaas.config names {module}, not PlainLoginModule.")
    return {
        option.removeprefix(USER_OPTION): Secret(password)
        for option, password in options.items()
        if option.startswith(USER_OPTION)
    }
