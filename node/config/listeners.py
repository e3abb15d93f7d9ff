"""The listeners of a broker, with names, bound and advertised addresses, and security protocols.

The rules are Kafka's (KIP-103). A listener has a name, `listener.security.protocol.map` gives its
security protocol, `advertised.listeners` gives clients another address, and
`listener.name.NAME.KEY` overrides a key for one listener.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple

from ...wire.errors import InvalidConfig

PREFIX = "listener.name."
_ENTRY = re.compile(r"(.+)://(?:\[([0-9a-fA-F:.%]*)\]|([0-9a-zA-Z\-._%]*)):([0-9]{1,5})")
_UNROUTABLE = ("", "0.0.0.0", "::")


class SecurityProtocol(Enum):
    """The security protocol of a listener. The values are Kafka's ids."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def uses_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


# Kafka shows the default in this order.
DEFAULT_MAP = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"


class Endpoint(NamedTuple):
    """The address that a listener is bound to or advertises."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener of a broker. `advertised` is None if the listener is not advertised.

    `overrides` holds the parsed values of this listener's keys `listener.name.NAME.KEY`, by the
    name of KEY's attribute in BrokerConfig.
    """

    name: str
    protocol: SecurityProtocol
    bind: Endpoint
    advertised: Endpoint | None
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_plain_loopback(self) -> bool:
        """Return whether the listener is PLAINTEXT and reachable from this machine only."""
        # a loopback listener with another advertised address is reached through a tunnel
        ends = (self.bind, self.advertised or self.bind)
        return self.protocol is SecurityProtocol.PLAINTEXT and all(
            is_loopback(end.host) for end in ends
        )


def plain_address(host: str) -> str | None:
    """Return the canonical form of an IP address without a zone, or None for a host name."""
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]").partition("%")[0])
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address or localhost."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def parse_listeners(
    listeners: Iterable[str], advertised: Iterable[str], protocols: Iterable[str]
) -> tuple[Listener, ...]:
    """Return the listeners that three configuration keys describe, or raise InvalidConfig.

    The keys are `listeners`, `advertised.listeners` and `listener.security.protocol.map`.
    """
    protocol_of = _protocols(protocols)
    bound = _endpoints("listeners", listeners)
    told = _endpoints("advertised.listeners", advertised) or bound
    if not bound:
        raise InvalidConfig("listeners must name at least one listener.")
    for name in (*bound, *told):
        if name not in protocol_of:
            raise InvalidConfig(
                f"No security protocol defined for listener {name}: "
                "name it in listener.security.protocol.map."
            )
    if told.keys() - bound.keys():
        raise InvalidConfig(
            "advertised.listeners listener names must be equal to or a subset of the ones defined "
            f"in listeners. Found {','.join(told)}. The valid options based on the current "
            f"configuration are {','.join(bound)}"
        )
    _check_ports(bound)
    for name, endpoint in told.items():
        if endpoint.host in _UNROUTABLE:
            raise InvalidConfig(
                f"Clients cannot connect to {endpoint.host or 'an empty host'} of {name}: "
                "set advertised.listeners."
            )
    return tuple(
        Listener(name, protocol_of[name], endpoint, told.get(name))
        for name, endpoint in bound.items()
    )


def listener_key(name: str) -> tuple[str, str] | None:
    """Split `listener.name.NAME.KEY` into the upper-case name and the key, or return None."""
    if not name.startswith(PREFIX):
        return None
    listener, _, key = name[len(PREFIX) :].partition(".")
    return listener.upper(), key


def _protocols(entries: Iterable[str]) -> dict[str, SecurityProtocol]:
    found: dict[str, SecurityProtocol] = {}
    for entry in entries:
        name, colon, protocol = (part.strip() for part in entry.partition(":"))
        if not colon or not name or protocol.upper() not in SecurityProtocol.__members__:
            raise InvalidConfig(
                f"listener.security.protocol.map must hold entries such as NAME:SASL_SSL, "
                f"not {entry}; protocols are {', '.join(SecurityProtocol.__members__)}."
            )
        if name.upper() in found:
            raise InvalidConfig(f"listener.security.protocol.map names {name} twice.")
        found[name.upper()] = SecurityProtocol[protocol.upper()]
    return found


def _endpoints(key: str, entries: Iterable[str]) -> dict[str, Endpoint]:
    found: dict[str, Endpoint] = {}
    for entry in entries:
        parts = _ENTRY.fullmatch(entry)
        if parts is None or int(parts[4]) > 65535:
            raise InvalidConfig(f"{key} must look like PLAINTEXT://host:port, not {entry}.")
        name = parts[1].upper()
        if name in found:
            raise InvalidConfig(f"Each listener must have a different name, {key}: {entry}")
        found[name] = Endpoint(parts[2] or parts[3] or "", int(parts[4]))
    return found


def _check_ports(bound: Mapping[str, Endpoint]) -> None:
    """Raise InvalidConfig for two listeners on one port, except for IPv4 and IPv6 (KIP-797)."""
    seen: dict[int, list[bool]] = {}
    for endpoint in bound.values():
        if endpoint.port:
            seen.setdefault(endpoint.port, []).append(_is_ipv6(endpoint.host))
    for port, families in seen.items():
        if len(set(families)) < len(families):
            raise InvalidConfig(f"Each listener must have a different port: {port} stands twice.")


def _is_ipv6(host: str) -> bool:
    try:
        return isinstance(ip_address(host.partition("%")[0]), IPv6Address)
    except ValueError:
        return False
