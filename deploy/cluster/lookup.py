"""The cluster that a command uses, by a directory, an address, a variable or a profile."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import layout
from .advice import is_of_another, repeat_options, shell_command
from .failure import Failure
from .secured.files import admin_values
from .terminal import say

if TYPE_CHECKING:
    from ...client.blocking import BlockingAdmin
    from ...client.cluster_view import ClusterView
    from .local_cluster import Cluster
    from .profiles import Profile

DEFAULT_DATA = Path(".oncelog")
VARIABLES = ("ONCELOG_BOOTSTRAP", "KAFKA_BOOTSTRAP_SERVERS")


def open_cluster(data: Path) -> "Cluster":
    """Open the cluster of a directory."""
    from .local_cluster import Cluster

    repeat_options(data=None if data == DEFAULT_DATA else data)
    return Cluster.open(data)


def bootstrap_line(data: Path) -> str:
    """Return the bootstrap line of the cluster of a directory."""
    return layout.existing(
        data.resolve(), ", or name one: --bootstrap HOST:PORT, --profile NAME"
    ).bootstrap


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChoice:
    """A command's options for its cluster, by default the cluster in the directory `data`.

    If there is no cluster in the default directory, an environment variable or the current profile
    names the cluster. command_config: a client.properties. profile: the name of a profile, used
    instead of the directory.
    """

    data: Path
    bootstrap: str | None = None
    command_config: Path | None = None
    profile: str | None = None

    def client_config(self) -> dict[str, Any]:
        """Return the client configuration with the cluster's address and the login."""
        repeat_options(
            bootstrap=self.bootstrap,
            command_config=self.command_config,
            profile=self.profile,
            data=None if self.data == DEFAULT_DATA else self.data,
        )
        config = self._file_config()
        if "bootstrap.servers" not in config:
            found = self._elsewhere() or self._here()
            if config:  # the user of that file logs in, and no other
                found = {"bootstrap.servers": found["bootstrap.servers"]}
            config |= found
        return config

    def registry(self) -> str | None:
        """Return the Schema Registry's URL from a profile or the environment, or None if unset."""
        if self.profile is None and (named := os.environ.get("SCHEMA_REGISTRY_URL")):
            return named
        profile = self._profile(self.profile)
        return profile and profile.registry

    def _here(self) -> dict[str, str]:
        """Return address and login of the cluster in `data`, or raise Failure without a cluster."""
        servers = bootstrap_line(self.data)
        return {**admin_values(self.data.resolve()), "bootstrap.servers": servers}

    def _elsewhere(self) -> dict[str, Any] | None:
        """Return the connection from an environment variable or the current profile, and print it.

        Returns None if `data` was given, if the default directory has a cluster, or if neither the
        environment nor a profile has an address.
        """
        if self.data != DEFAULT_DATA or layout.read(self.data.resolve()) is not None:
            return None
        for name in VARIABLES:
            if line := os.environ.get(name):
                _require_addresses(name, line)
                say(f"using the cluster {line}, from {name}")
                return {"bootstrap.servers": line}
        profile = self._profile(None)
        if profile is None:
            return None
        config = _config_of(profile)
        if "bootstrap.servers" not in config:
            return None
        say(f"using the cluster {config['bootstrap.servers']}, from the current profile")
        return config

    @staticmethod
    def _profile(name: str | None) -> "Profile | None":
        """Return the profile of a name, or the current profile.

        Raises Failure for an unknown name.
        """
        from .profiles import read_profiles

        profiles = read_profiles()
        chosen = name or profiles.current
        return profiles.named(chosen) if chosen else None

    def named_config(self) -> dict[str, Any] | None:
        """Return the connection in the options, or None if they have no connection.

        Commands that start their own cluster without such options use this method.
        """
        config = self._file_config()
        if config.get("bootstrap.servers"):
            return config
        if self.command_config is None:
            return None
        raise Failure(
            f"{self.command_config} names no bootstrap.servers. Also give --bootstrap HOST:PORT.",
            exit_code=2,
        )

    @contextmanager
    def admin(self) -> Iterator["BlockingAdmin"]:
        from .blocking_admin import blocking_admin

        config = self.client_config()
        with self.as_failures(), blocking_admin(config, timeout_ms=10_000, say=say) as admin:
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
        """Raise errors of the block that the user can mend as Failure.

        They are a wrong value in --command-config, and no answer from the cluster in `data`.
        """
        from ...wire.errors import NetworkException

        try:
            yield
        except ValueError as problem:
            if self.command_config is None:
                raise
            raise Failure(f"{self.command_config}: {problem}", exit_code=2) from None
        except NetworkException as problem:
            is_known = "no broker answers" in str(problem) and not is_of_another()
            if not is_known or layout.read(self.data.resolve()) is None:
                raise
            data = None if self.data == DEFAULT_DATA else self.data
            again = shell_command("up", data=data)
            raise Failure(f"{problem}. If the nodes have ended, start them: {again}") from None

    def _file_config(self) -> dict[str, Any]:
        """Return the connection of --profile and --command-config.

        --bootstrap replaces the address in both.
        """
        config: dict[str, Any] = {}
        named = None if self.profile is None else self._profile(self.profile)
        if named is not None:
            config |= _config_of(named, has_file=self.command_config is None)
        if self.command_config is not None:
            config |= _read_file(self.command_config)
        if self.bootstrap is not None:
            config["bootstrap.servers"] = self.bootstrap
        return config


def _config_of(profile: "Profile", *, has_file: bool = True) -> dict[str, Any]:
    """Return the connection of a profile. Its command_config is read only if `has_file`."""
    file = profile.command_config if has_file else None
    config = _read_file(Path(file)) if file else {}
    if profile.bootstrap:
        _require_addresses("the profile's bootstrap", profile.bootstrap)
        config["bootstrap.servers"] = profile.bootstrap
    return config


def _read_file(file: Path) -> dict[str, Any]:
    """Return the connection settings of a client.properties."""
    from ...client.security.client_file import read_client_file

    try:
        config, unused = read_client_file(file)
    except ValueError as problem:
        raise Failure(f"--command-config {problem}.", exit_code=2) from None
    if unused:
        say(f"{file}: settings that oncelog does not use: {', '.join(unused)}")
    return config


def _require_addresses(name: str, line: str) -> None:
    from ...client.cluster_view import parse_bootstrap

    try:
        parse_bootstrap(line)
    except ValueError as problem:
        raise Failure(f"{name}: {problem}", exit_code=2) from None
