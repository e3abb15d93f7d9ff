"""The valid and invalid logins that each client tries on oncelog and on Apache Kafka.

The file does no I/O.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from .logins import MECHANISMS, Logins
from .token_provider import STRANGER

SASL = ("SASL_PLAINTEXT", "SASL_SSL")
IN = "in"


class Case(NamedTuple):
    """One login. `wrong` is its fault or "". `way` is the protocol and the mechanism."""

    wrong: str
    way: str
    values: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.wrong or 'right'}: {self.way}"


def cases(peer: Logins) -> Iterator[Case]:
    """Yield all logins of the script in their order."""
    mtls = peer.login("SSL", "")
    tls = {name: mtls[name] for name in mtls if not name.startswith("ssl.key")}
    tls["bootstrap.servers"] = peer.address("TLS")
    yield Case("", "SSL", tls)
    yield Case("", "mTLS", mtls)
    ways = [(protocol, mechanism) for protocol in SASL for mechanism in MECHANISMS]
    for protocol, mechanism in ways:
        yield Case("", f"{protocol} {mechanism}", peer.login(protocol, mechanism))
    for protocol, mechanism in ways:
        if mechanism == "OAUTHBEARER":
            values = peer.login(protocol, mechanism, STRANGER)
            yield Case("token for others", f"{protocol} {mechanism}", values)
        else:
            values = {**peer.login(protocol, mechanism), "sasl.password": "falsch"}
            yield Case("wrong password", f"{protocol} {mechanism}", values)
    files, sasl_ssl = peer.files, peer.login("SASL_SSL", "PLAIN")
    expired = {**mtls, "ssl.keystore.location": str(files.expired)}
    yield Case("expired certificate", "mTLS", expired)
    late = {"bootstrap.servers": peer.address("LATE")}
    yield Case("expired certificate of the broker", "SSL", {**tls, **late})
    unknown = {"ssl.ca.location": str(files.other_ca)}
    yield Case("unknown CA of the broker", "SSL", {**tls, **unknown})
    yield Case("unknown CA of the broker", "SASL_SSL PLAIN", {**sasl_ssl, **unknown})
    foreign = {**mtls, "ssl.keystore.location": str(files.mallory)}
    yield Case("unknown CA of the client", "mTLS", foreign)
    for way, protocol, values in (
        ("SSL", "TLS", tls),
        ("SASL_SSL PLAIN", "SASL_SSL", sasl_ssl),
    ):
        other = {"bootstrap.servers": f"localhost:{peer.ports[protocol]}"}
        yield Case("wrong host name", way, {**values, **other})
    plain = {"security.protocol": "PLAINTEXT", "bootstrap.servers": peer.address("TLS")}
    yield Case("plain text to a TLS port", "PLAINTEXT", plain)
    login = peer.login("SASL_PLAINTEXT", "PLAIN")
    to_tls = {"bootstrap.servers": peer.address("SASL_SSL")}
    yield Case("plain text to a TLS port", "SASL_PLAINTEXT PLAIN", {**login, **to_tls})
    to_plain = {"bootstrap.servers": peer.address("SASL_PLAINTEXT")}
    yield Case("TLS to a plain port", "SSL", {**tls, **to_plain})
    yield Case("TLS to a plain port", "SASL_SSL PLAIN", {**sasl_ssl, **to_plain})
