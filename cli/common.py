"""Options, printing of results, and checks of extras that the commands share."""

import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from ..deploy.cluster.failure import Failure, told_by_system
from ..deploy.cluster.lookup import DEFAULT_DATA, ClusterChoice
from ..deploy.cluster.terminal import closable, say, tell

EARLIEST, LATEST = -2, -1  # of client.admin, whose import takes time


def check_bootstrap(_type: object, value: str | None) -> None:
    """Raise ValueError for a text that is not HOST:PORT,..."""
    from ..client.cluster_view import parse_bootstrap

    if value is not None:
        parse_bootstrap(value)


Data = Annotated[Path, Parameter(help="The cluster's directory.")]
Format = Annotated[Literal["table", "json"], Parameter(help="How to print the result.")]
Bootstrap = Annotated[
    str | None,
    Parameter(
        help="Use the Kafka-compatible cluster at HOST:PORT,... instead of --data.",
        validator=check_bootstrap,
    ),
]
Registry = Annotated[
    str | None,
    Parameter(
        help="The URL of a Schema Registry. The default is SCHEMA_REGISTRY_URL, or the URL of "
        "the profile."
    ),
]
Pairs = Annotated[
    list[str] | None,
    Parameter(
        name=["--config", "-c"],
        help="A setting as key=value. The option may be repeated.",
        negative=(),
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions(ClusterChoice):
    """The options of commands that speak the Kafka protocol."""

    data: Data = DEFAULT_DATA
    bootstrap: Bootstrap = None
    command_config: Annotated[
        Path | None,
        Parameter(
            help="Read TLS and SASL settings from this client.properties file. It has "
            "librdkafka's or Java's names, and may name bootstrap.servers.",
        ),
    ] = None
    profile: Annotated[
        str | None, Parameter(help="Use the cluster of this profile (see oncelog profile).")
    ] = None


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Query(ClusterOptions):
    """The options of a cluster, and the format of the result."""

    format: Format = "table"


__all__ = ["DEFAULT_DATA"]  # handed on
DEFAULT_CLUSTER, QUERY = ClusterOptions(), Query()


def registry_url(url: str | None, cluster: ClusterChoice) -> str:
    """Return the URL of the Schema Registry from an option, the environment or a profile.

    Raises Failure if none of them has a URL.
    """
    found = url or cluster.registry()
    if not found:
        raise Failure(
            "Where is the Schema Registry? Give --registry http://HOST:PORT, or set "
            "SCHEMA_REGISTRY_URL.",
            exit_code=2,
        )
    return found


def add_family(
    app: App, name: str, about: str, *commands: Callable[..., Any], **named: Callable[..., Any]
) -> None:
    """Add commands to `app` under one name, such as `list` and `describe` under `oncelog topic`.

    `commands` have the names of their functions, and `named` has other commands by name.
    """
    family = App(name=name, help=about)
    for command in commands:
        family.command(command)
    for called, command in named.items():
        family.command(command, name=called)
    app.command(family)


def headings(*keys: str, **others: str) -> dict[str, str]:
    """Return a table's column headings by key.

    `others` has headings by key. The heading of any other key is the key in capitals.
    """
    return {key: others.get(key, key.replace("_", " ").upper()) for key in keys}


def print_report(fields: Mapping[str, Any], lines: Iterable[str], output: str) -> None:
    """Print `fields` as one JSON object if `output` is "json", else print `lines`."""
    with closable(sys.stdout):
        if output == "json":
            print(json.dumps(fields, default=str))
        else:
            for line in lines:
                tell(line)


@contextmanager
def judging() -> Iterator[None]:
    """Let an error in the block end the command with exit code 2, since 1 means violated."""
    try:
        yield
    except Exception as problem:
        from ..wire.errors import KafkaError

        if not isinstance(problem, (Failure, KafkaError, OSError)):
            traceback.print_exc()
        told = told_by_system(problem) if isinstance(problem, OSError) else None
        raise Failure(told or str(problem) or type(problem).__name__, exit_code=2) from problem


def say_missing(errors: Mapping[int, Exception], items: str) -> int:
    """Print that some `items` may be missing from a list, for each node that does not answer.

    errors: the errors of these nodes. Return the command's exit code, which is 0 if there are none.
    """
    for node_id, problem in errors.items():
        say(f"node {node_id} does not answer, so some {items} may be missing: {problem}")
    return 1 if errors else 0


def require(extra: str, *modules: str) -> None:
    """Raise Failure, with the command that installs the extra, if a module is missing."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        command = f"{Path(sys.executable).name} -m pip install '.[{extra}]'"
        raise Failure(
            f"This needs {' and '.join(missing)}. In a checkout of oncelog: {command}", exit_code=2
        )


def pairs(texts: Sequence[str] | None) -> dict[str, str]:
    """Return `key=value` texts as a dictionary. Raises Failure for a text of another form."""
    found: dict[str, str] = {}
    for text in texts or ():
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise Failure(f"{text!r} is not key=value.", exit_code=2)
        found[key.strip()] = value.strip()
    return found


def feature_levels(texts: list[str] | None) -> dict[str, int]:
    """Return the feature levels of NAME=LEVEL texts by name.

    Raises Failure for a level that a cluster cannot have.
    """
    from ..wire.features import FEATURES

    levels = {
        name: range(feature.default if feature.is_fixed else feature.lowest, feature.highest + 1)
        for name, feature in FEATURES.items()
    }
    found = pairs(texts)
    for name, level in found.items():
        if level not in map(str, levels.get(name, ())):
            allowed = ", ".join(
                f"{each} {possible[0]}-{possible[-1]}" for each, possible in levels.items()
            )
            raise Failure(f"{name}={level} is no level of a feature: {allowed}.", exit_code=2)
    return {name: int(level) for name, level in found.items()}
