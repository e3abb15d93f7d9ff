"""A text by which a process that we start finds a cluster and logs in, without a secret.

Every user may see the arguments of a process. Therefore the text is a bootstrap line or, for a
secured cluster, the path of the admin's client file, which has the password.
"""

from pathlib import Path
from typing import Any

from ....client.security.properties_file import parse_properties


def client_config(connection: str) -> dict[str, Any]:
    """Return the configuration of a client, for ours and for confluent-kafka."""
    if not is_file(connection):
        return {"bootstrap.servers": connection}
    return dict(parse_properties(Path(connection).read_text(encoding="utf-8")))


def connection_options(connection: str) -> list[str]:
    """Return the options of a command that connects to the cluster."""
    return ["--command-config" if is_file(connection) else "--bootstrap", connection]


def is_file(connection: str) -> bool:
    """Return whether a text is the path of a client file, which is absolute."""
    return connection.startswith("/")
