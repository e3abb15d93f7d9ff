"""The connection text, which a process gets as an argument to find a cluster and to log in.

The text has no secret, because every user may see the arguments of a process. It is a bootstrap
line or, for a secured cluster, the path of the admin's client file, which has the password.
"""

from pathlib import Path
from typing import Any

from ....client.security.properties_file import parse_properties


def client_config(connection: str) -> dict[str, Any]:
    """Return the configuration for a connection text, for our clients and confluent-kafka."""
    if not is_file(connection):
        return {"bootstrap.servers": connection}
    return dict(parse_properties(Path(connection).read_text(encoding="utf-8")))


def connection_options(connection: str) -> list[str]:
    """Return the option --bootstrap or --command-config for a command, from a connection text."""
    return ["--command-config" if is_file(connection) else "--bootstrap", connection]


def is_file(connection: str) -> bool:
    """Return whether a connection text is the absolute path of a client file."""
    return connection.startswith("/")
