"""A proxy in front of a secured cluster, with TLS on both sides, and files for its clients.

In front of a cluster of ours, the proxy presents the nodes' certificate, which is for loopback, so
clients trust one CA. In front of other clusters, it presents a certificate of a new CA. Clients log
in through the proxy as at a broker. Only client certificates do not pass, because brokers see the
proxy's certificate.
"""

import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ....client.security.config import security_config
from ....client.security.tls import make_context
from ....client.settings import ADMIN, read_settings
from ...cluster.failure import Failure
from ...cluster.private import write_private
from ...cluster.secured.files import (
    CLIENT_KINDS,
    EXPIRED_AT,
    EXPIRED_CERTIFICATE,
    NODE_CERTIFICATE,
    TLS,
    properties_text,
)
from .two_ends import ProxyTls

_MODULES = "org.apache.kafka.common.security"


def proxy_tls(data: Path) -> ProxyTls:
    """Return the proxy's certificate and trusted CA."""

    def load(context: ssl.SSLContext, is_expired: bool) -> None:
        context.load_cert_chain(
            data / TLS / (EXPIRED_CERTIFICATE if is_expired else NODE_CERTIFICATE)
        )

    return _with_certificate(ssl.create_default_context(cafile=ca_of(data)), load)


def _with_certificate(
    to_brokers: ssl.SSLContext, load: Callable[[ssl.SSLContext, bool], object]
) -> ProxyTls:
    """Return the proxy's TLS with the valid certificate.

    There are no session tickets, since a resumed session would accept an expired certificate.
    """
    to_clients = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    to_clients.options |= ssl.OP_NO_TICKET
    to_clients.num_tickets = 0
    tls = ProxyTls(to_clients, to_brokers, load)
    tls.present(is_expired=False)
    return tls


def ca_of(data: Path) -> Path:
    """Return the CA that clients of our secured cluster trust."""
    return data / TLS / "ca.pem"


def own_tls(config: Mapping[str, Any], ca_file: Path) -> ProxyTls:
    """Return the proxy's TLS with a certificate of a new CA. The CA is written to `ca_file`.

    config: the settings of a client of the cluster. Raises ValueError for settings without TLS, and
    Failure if trustme is missing or the file cannot be written.
    """
    try:
        import trustme
    except ImportError:
        raise Failure(
            "A proxy with TLS needs trustme: install oncelog with its extra `secure`."
        ) from None
    security = security_config(read_settings(ADMIN, dict(config), {}))
    if security is None or security.tls is None:
        raise ValueError("security.protocol names no TLS")
    to_brokers = make_context(security.tls)
    authority = trustme.CA(organization_name="oncelog proxy")
    names = "127.0.0.1", "::1", "localhost"
    valid = authority.issue_cert(*names)
    expired = authority.issue_cert(*names, not_after=EXPIRED_AT)

    def load(context: ssl.SSLContext, is_expired: bool) -> None:
        (expired if is_expired else valid).configure_cert(context)

    try:
        ca_file.write_bytes(authority.cert_pem.bytes())
    except OSError as problem:
        raise Failure(f"{ca_file} cannot be written: {problem.strerror}.", exit_code=2) from None
    return _with_certificate(to_brokers, load)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def write_files_like(
    config: Mapping[str, Any], ca_file: Path, folder: Path, name: str, address: str
) -> dict[str, Path]:
    """Write client files with the login in `config` for the proxy's address. Return them by kind.

    They have no login by tokens, so the application itself must set it. Raises ValueError for
    invalid settings.
    """
    security = security_config(read_settings(ADMIN, dict(config), {}))
    protocol = "PLAINTEXT" if security is None else security.protocol
    common = {"bootstrap.servers": address, "security.protocol": protocol}
    login = None if security is None else security.sasl
    has_password = login is not None and login.tokens is None

    def values(kind: str) -> dict[str, str]:
        found = dict(common)
        is_java = kind == "java"
        if protocol.endswith("SSL"):
            found["ssl.truststore.location" if is_java else "ssl.ca.location"] = str(ca_file)
            if is_java:
                found["ssl.truststore.type"] = "PEM"
        if login is not None:
            found["sasl.mechanism"] = login.mechanism
        if login is not None and has_password:
            user, password = login.username, login.password.reveal()
            if is_java:
                kind = "plain.Plain" if login.mechanism == "PLAIN" else "scram.Scram"
                options = f'required username="{_quoted(user)}" password="{_quoted(password)}"'
                found["sasl.jaas.config"] = f"{_MODULES}.{kind}LoginModule {options};"
            else:
                found |= {"sasl.username": user, "sasl.password": password}
        return found

    return _written(folder, name, values)


def _written(folder: Path, name: str, values: Callable[[str], dict[str, str]]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for kind in CLIENT_KINDS:
        found[kind] = folder / f"{name}.{kind}.properties"
        write_private(found[kind], properties_text(values(kind)))
    return found
