"""`oncelog profile` stores clusters by name, for commands that find no local cluster."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from ..deploy.cluster.failure import Failure
from ..deploy.cluster.profiles import Profile, file_of_profiles, read_profiles, write_profiles
from ..deploy.cluster.terminal import say, show
from .common import Bootstrap, Format, add_family, headings

COLUMNS = headings("profile", "current", "bootstrap", "command_config", "registry")


def register(app: App) -> None:
    """Add the commands of this file to `app`."""
    about = "Name clusters, for commands without a .oncelog directory and without --bootstrap."
    add_family(app, "profile", about, use, delete, set=set_profile, list=list_profiles)


def set_profile(
    name: str,
    /,
    *,
    bootstrap: Bootstrap = None,
    command_config: Annotated[
        Path | None, Parameter(help="Use the settings in this client.properties file.")
    ] = None,
    registry: Annotated[str | None, Parameter(help="The URL of a Schema Registry.")] = None,
) -> None:
    """Create or change a profile. The first profile becomes the one in use."""
    given = {
        "bootstrap": bootstrap,
        "command_config": str(command_config.resolve()) if command_config else None,
        "registry": registry,
    }
    changes = {key: value for key, value in given.items() if value is not None}
    if not changes:
        raise Failure("Give --bootstrap, --command-config or --registry.", exit_code=2)
    if command_config is not None and not command_config.is_file():
        raise Failure(f"{command_config} is not a file.", exit_code=2)
    profiles = read_profiles()
    if not profiles.profiles:
        profiles.current = name
    profiles.profiles[name] = replace(profiles.profiles.get(name, Profile()), **changes)
    write_profiles(profiles)
    say(f"profile {name} is in {file_of_profiles()}")
    if profiles.current != name:
        say("use it once with --profile, or from here on with oncelog profile use")


def use(
    name: Annotated[
        str | None, Parameter(help="The name of the profile. Without a name, no profile is used.")
    ] = None,
    /,
) -> None:
    """Use a profile from now on. Without a name, use none."""
    profiles = read_profiles()
    if name is not None:
        profiles.named(name)
    profiles.current = name
    write_profiles(profiles)
    say("no profile is used" if name is None else f"profile {name} is used")


def list_profiles(*, format: Format = "table") -> None:
    """List the profiles, and show which one is used."""
    found = read_profiles()
    rows = [
        {"profile": name, "current": name == found.current, **asdict(each)}
        for name, each in sorted(found.profiles.items())
    ]
    show(rows, format, columns=COLUMNS)


def delete(name: str, /) -> None:
    """Delete a profile."""
    profiles = read_profiles()
    profiles.named(name)
    del profiles.profiles[name]
    if profiles.current == name:
        profiles.current = None
    write_profiles(profiles)
    say(f"deleted profile {name}")
