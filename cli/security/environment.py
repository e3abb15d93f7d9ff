"""`oncelog env` prints the settings with which clients reach the cluster."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ...deploy.cluster.advice import shell_word
from ...deploy.cluster.failure import Failure
from ...deploy.cluster.lookup import bootstrap_line
from ...deploy.cluster.secured.files import CLIENT_KINDS, client_file, client_values, passwords_of
from ..common import DEFAULT_DATA, Data, Format, print_report

HIDDEN = "[hidden]"


def env(
    *,
    client: Annotated[
        Literal["librdkafka", "java", "spark"] | None,
        Parameter(
            help="Print a user's configuration for this client. The cluster must be secured."
        ),
    ] = None,
    user: Annotated[
        str, Parameter(name=["--user", "-U"], help="The user: admin, alice or bob.")
    ] = "admin",
    show_secrets: Annotated[bool, Parameter(help="Also print passwords.", negative=())] = False,
    data: Data = DEFAULT_DATA,
    format: Format = "table",
) -> None:
    """Print shell variables with the address of the cluster, for eval "$(oncelog env)"."""
    line = bootstrap_line(data)
    if client is not None:
        file, values = _of_user(data.resolve(), client, user, line, show_secrets)
        lines = (f"{key}={value}" for key, value in values.items())
        print_report({"file": str(file), **values}, [f"# {file}", *lines], format)
        return
    values = {"ONCELOG_BOOTSTRAP": line, "KAFKA_BOOTSTRAP_SERVERS": line}
    print_report(
        values, (f"export {key}={shell_word(value)}" for key, value in values.items()), format
    )


def _of_user(
    data: Path, kind: str, user: str, bootstrap: str, show_secrets: bool
) -> tuple[Path, dict[str, str]]:
    passwords = passwords_of(data)
    if user not in passwords:
        have = ", ".join(passwords) or "none: it was not started with --secure"
        raise Failure(f"The cluster has no user {user}; it has {have}.", exit_code=2)
    password = passwords[user] if show_secrets else HIDDEN
    if kind in CLIENT_KINDS:
        return client_file(data, user, kind), client_values(data, kind, user, password, bootstrap)
    java = CLIENT_KINDS[1]  # of which Spark takes the names, behind `kafka.`
    values = client_values(data, java, user, password, bootstrap)
    return client_file(data, user, java), {f"kafka.{key}": each for key, each in values.items()}
