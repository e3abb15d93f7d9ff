"""What a proxy in front of a secured cluster needs: TLS on both sides, and files for its clients.

The proxy shows the nodes' certificate, which is for loopback, so that clients trust one CA. They
log in through it as if it were a broker.
"""

import ssl
from pathlib import Path

from ...cluster.private import write_private
from ...cluster.secured.files import (
    CLIENT_KINDS,
    TLS,
    USERS,
    client_values,
    passwords_of,
    properties_text,
)
from .two_ends import ProxyTls


def proxy_tls(data: Path) -> ProxyTls:
    """Return what the proxy shows, and what it trusts."""
    to_clients = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    to_clients.load_cert_chain(data / TLS / "node.pem")
    return ProxyTls(to_clients, ssl.create_default_context(cafile=data / TLS / "ca.pem"))


def write_client_files(data: Path, folder: Path, name: str, address: str) -> dict[str, Path]:
    """Write the admin's settings for a client of the proxy; return the files by kind."""
    user = USERS[0]
    password = passwords_of(data)[user]
    found: dict[str, Path] = {}
    for kind in CLIENT_KINDS:
        found[kind] = folder / f"{name}.{kind}.properties"
        values = client_values(data, kind, user, password, address)
        write_private(found[kind], properties_text(values))
    return found
