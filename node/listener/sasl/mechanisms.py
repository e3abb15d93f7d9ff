"""The mechanisms of a listener: what its keys enable, over the users that it knows."""

from collections.abc import Callable, Mapping
from functools import partial

from ....coordinator.metadata.cluster_tables import ClusterTables
from ....coordinator.security.scram_changes import MECHANISM_IDS
from ....wire.errors import InvalidConfig
from ....wire.security.jaas import parse_jaas
from ....wire.security.sasl import PlainServer, SaslServer
from ....wire.security.scram_server import ScramCredential, ScramServer
from ....wire.security.secret import Secret
from ...config.broker_config import BrokerConfig
from ...config.listener_keys import ListenerSettings
from .login import Mechanisms

USER_OPTION = "user_"
NONCE_BYTES = 24


def sasl_mechanisms(
    config: BrokerConfig, tables: ClusterTables, random_bytes: Callable[[int], bytes]
) -> dict[str, Mechanisms]:
    """Return the mechanisms of each listener with logins, by its name; raises InvalidConfig."""
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
                name: _mechanism(name, settings, tables, random_bytes, secret)
                for name in settings.sasl_enabled_mechanisms
            }
    return found


def _mechanism(
    name: str,
    settings: ListenerSettings,
    tables: ClusterTables,
    random_bytes: Callable[[int], bytes],
    secret: bytes,
) -> Callable[[], SaslServer]:
    if name == "PLAIN":
        return partial(PlainServer, plain_users(settings.plain_sasl_jaas_config))
    number = MECHANISM_IDS[name]

    def find(user: str) -> ScramCredential | None:
        return tables.scram_credentials.get(user, {}).get(number)

    return lambda: ScramServer(name, random_bytes(NONCE_BYTES).hex(), find, secret)


def plain_users(jaas: Secret) -> Mapping[str, Secret]:
    """Return the passwords of the users that a JAAS text names; raises InvalidConfig."""
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
