"""The cluster that is meant: by its directory, or by a bootstrap line."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import layout
from .failure import Failure
from .terminal import say

if TYPE_CHECKING:
    from ...client.blocking import BlockingAdmin
    from ...client.cluster_view import ClusterView
    from .local_cluster import Cluster


def open_cluster(data: Path) -> "Cluster":
    """The cluster of a directory."""
    from .local_cluster import Cluster

    return Cluster.open(data)


def bootstrap_line(data: Path) -> str:
    """Where to connect to the cluster of a directory."""
    return layout.existing(data.resolve(), ", or name one with --bootstrap HOST:PORT").bootstrap


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChoice:
    """Which cluster, and how to connect: the one of `data` where neither other option names one.

    command_config: a client.properties.
    """

    data: Path
    bootstrap: str | None = None
    command_config: Path | None = None

    def client_config(self) -> dict[str, Any]:
        """How to connect, as a client's configuration: --command-config, and where to."""
        config = self._file_config()
        if "bootstrap.servers" not in config:
            config["bootstrap.servers"] = bootstrap_line(self.data)
        return config

    def named_config(self) -> dict[str, Any] | None:
        """The same for commands that start a cluster where none is named: None then."""
        config = self._file_config()
        if config.get("bootstrap.servers"):
            return config
        if self.command_config is None:
            return None
        raise Failure(
            f"{self.command_config} names no bootstrap.servers: give --bootstrap HOST:PORT, too.",
            exit_code=2,
        )

    @contextmanager
    def admin(self) -> Iterator["BlockingAdmin"]:
        from .blocking_admin import blocking_admin

        config = self.client_config()
        with self.as_failures(), blocking_admin(config, timeout_ms=10_000) as admin:
            yield admin

    @asynccontextmanager
    async def view(self) -> AsyncIterator["ClusterView"]:
        from ...client.view_source import view_of

        config = self.client_config()
        with self.as_failures():
            view = view_of(config)
            try:
                yield view
            finally:
                await view.close()

    @contextmanager
    def as_failures(self) -> Iterator[None]:
        """What is wrong with the values of the file is the caller's to mend, not a bug of ours."""
        try:
            yield
        except ValueError as problem:
            if self.command_config is None:
                raise
            raise Failure(f"{self.command_config}: {problem}", exit_code=2) from None

    def _file_config(self) -> dict[str, Any]:
        """What --command-config says about connections, and --bootstrap over it."""
        config: dict[str, Any] = {}
        if self.command_config is not None:
            from ...client.security.client_file import read_client_file

            try:
                config, unused = read_client_file(self.command_config)
            except ValueError as problem:
                raise Failure(f"--command-config {problem}.", exit_code=2) from None
            if unused:
                say(f"{self.command_config}: not used here: {', '.join(unused)}")
        if self.bootstrap is not None:
            config["bootstrap.servers"] = self.bootstrap
        return config
