"""The cluster that is meant: by its directory, or by a bootstrap line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .failure import Failure
from .terminal import say

if TYPE_CHECKING:
    from ...client.blocking import BlockingAdmin
    from .local_cluster import Cluster


def open_cluster(data: Path) -> "Cluster":
    """The cluster of a directory."""
    from .local_cluster import Cluster

    return Cluster.open(data)


def bootstrap_line(data: Path, bootstrap: str | None) -> str:
    """Where to connect: what was given, else the cluster of the directory."""
    if bootstrap is not None:
        return bootstrap
    from . import layout

    file = layout.read(data.resolve())
    if file is None:
        raise Failure(
            f"There is no cluster in {data.resolve()}. Start one with `oncelog up`, "
            "or name one with --bootstrap HOST:PORT."
        )
    return file.bootstrap


def file_config(command_config: Path | None) -> dict[str, Any]:
    """What --command-config says about connections; nothing without one."""
    if command_config is None:
        return {}
    from ...client.security.client_file import read_client_file

    try:
        config, unused = read_client_file(command_config)
    except ValueError as problem:
        raise Failure(f"--command-config {problem}.", exit_code=2) from None
    if unused:
        say(f"{command_config}: not used here: {', '.join(unused)}")
    return config


def client_config(data: Path, bootstrap: str | None, command_config: Path | None) -> dict[str, Any]:
    """How to connect, as a client's configuration: --command-config, and where to."""
    config = file_config(command_config)
    if bootstrap is not None or "bootstrap.servers" not in config:
        config["bootstrap.servers"] = bootstrap_line(data, bootstrap)
    return config


def named_config(bootstrap: str | None, command_config: Path | None) -> dict[str, Any] | None:
    """The same for commands that start a cluster where none is named: None then."""
    config = file_config(command_config)
    if bootstrap is not None:
        config["bootstrap.servers"] = bootstrap
    if not config.get("bootstrap.servers"):
        if command_config is None:
            return None
        raise Failure(
            f"{command_config} names no bootstrap.servers: give --bootstrap HOST:PORT, too.",
            exit_code=2,
        )
    return config


@contextmanager
def admin_of(
    data: Path, bootstrap: str | None, command_config: Path | None = None
) -> Iterator["BlockingAdmin"]:
    """An admin of the cluster that was meant."""
    from .blocking_admin import blocking_admin

    config = client_config(data, bootstrap, command_config)
    with as_failures(command_config), blocking_admin(config, timeout_ms=10_000) as admin:
        yield admin


@contextmanager
def as_failures(command_config: Path | None) -> Iterator[None]:
    """What is wrong with the values of the file is the caller's to mend, not a bug of ours."""
    try:
        yield
    except ValueError as problem:
        if command_config is None:
            raise
        raise Failure(f"{command_config}: {problem}", exit_code=2) from None
