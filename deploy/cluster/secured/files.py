"""The certificates, users and client files of a secured cluster.

All are in the cluster's directory, readable by their owner only. `tls/` has the CA's certificate,
the nodes' certificates and the users' passwords. `client/` has a file for each user and kind of
client. The first start creates all files. Client files are written again at each start, since ports
may change.
"""

import datetime
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from ..failure import Failure
from ..private import make_private_directory, write_private

USERS = ("admin", "alice", "bob")  # admin may do everything, the others as ACLs allow
LISTENER, MECHANISM = "SASL_SSL", "PLAIN"
CLIENT_KINDS = ("librdkafka", "java")
EXPIRED_AT = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
TLS, _CLIENT = "tls", "client"
NODE_CERTIFICATE, EXPIRED_CERTIFICATE = "node.pem", "expired.pem"  # the latter for faults
DIRECTORIES = (TLS, _CLIENT)


def prepare(data: Path, bootstrap: str) -> None:
    """Create the files of a secured cluster before its nodes start."""
    for name in DIRECTORIES:
        make_private_directory(data / name)
    if not (data / TLS / NODE_CERTIFICATE).exists():
        _write_certificates(data / TLS)
    if not _passwords_file(data).exists():
        passwords = {user: secrets.token_urlsafe(18) for user in USERS}
        write_whole(_passwords_file(data), json.dumps(passwords))
    for user, password in passwords_of(data).items():
        for kind in CLIENT_KINDS:
            values = client_values(data, kind, user, password, bootstrap)
            write_private(client_file(data, user, kind), properties_text(values))


def passwords_of(data: Path) -> dict[str, str]:
    """Return the passwords by user, or {} before the first start of the cluster."""
    try:
        return json.loads(_passwords_file(data).read_text())
    except FileNotFoundError:
        return {}


def node_settings(data: Path, host: str, port: int) -> dict[str, str]:
    """Return the settings for a node with one listener, which has TLS and logins.

    They also enable the authorizer.
    """
    users = "".join(f' user_{user}="{password}"' for user, password in passwords_of(data).items())
    address = f"{LISTENER}://{host}:{port}"
    return {
        "listeners": address,
        "advertised.listeners": address,
        "sasl.enabled.mechanisms": f"{MECHANISM},SCRAM-SHA-512",
        f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": f"{_JAAS}{users};",
        "ssl.keystore.location": str(data / TLS / NODE_CERTIFICATE),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }


def client_values(
    data: Path, kind: str, user: str, password: str, bootstrap: str
) -> dict[str, str]:
    """Return the settings of a client that logs in as a user.

    `kind` is "java" for Java's clients. All other kinds use the names of librdkafka.
    """
    common = {
        "bootstrap.servers": bootstrap,
        "security.protocol": LISTENER,
        "sasl.mechanism": MECHANISM,
    }
    ca_file = str(data / TLS / "ca.pem")
    if kind == "java":
        return {
            **common,
            "sasl.jaas.config": f'{_JAAS} username="{user}" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": ca_file,
        }
    return {
        **common,
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": ca_file,
    }


def client_file(data: Path, user: str, kind: str) -> Path:
    """Return the path of the client file for a user and a kind of client, such as "java"."""
    return data / _CLIENT / f"{user}.{kind}.properties"


def admin_values(data: Path) -> dict[str, str]:
    """Return the login of our own programs for the cluster of a directory, or {} for plain text.

    The login does not include bootstrap.servers.
    """
    password = passwords_of(data).get(USERS[0])
    if password is None:
        return {}
    values = client_values(data, CLIENT_KINDS[0], USERS[0], password, "")
    return {key: value for key, value in values.items() if key != "bootstrap.servers"}


def _passwords_file(data: Path) -> Path:
    return data / TLS / "passwords.json"


def _write_certificates(folder: Path) -> None:
    try:
        import trustme
    except ImportError:
        raise Failure(
            "--secure makes certificates with trustme, which is not installed: install oncelog "
            "with its extra `secure`."
        ) from None
    authority = trustme.CA(organization_name="oncelog")
    write_whole(folder / "ca.pem", authority.cert_pem.bytes().decode())
    for name, until in ((EXPIRED_CERTIFICATE, EXPIRED_AT), (NODE_CERTIFICATE, None)):
        issued = authority.issue_cert(
            "127.0.0.1", "::1", "localhost", common_name="oncelog", not_after=until
        )
        write_whole(folder / name, issued.private_key_and_cert_chain_pem.bytes().decode())


def write_whole(path: Path, text: str) -> None:
    """Write a file in one step, so that a power failure never leaves a part of it."""
    part = path.with_name(f"{path.name}.part")
    write_private(part, text)
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(path)


ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"})


def properties_text(values: Mapping[str, str]) -> str:
    """Return the lines of a file of properties, escaped as Java reads them."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in values.items())


def _escaped(value: str) -> str:
    """Return a properties file's value with backslashes, newlines and first blank escaped."""
    text = value.translate(ESCAPES)
    return f"\\{text}" if text[:1] == " " else text
