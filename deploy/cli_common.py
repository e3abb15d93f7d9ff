"""What the commands share: options, tables, finding the cluster."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from .failure import Failure

if TYPE_CHECKING:
    from ..client.blocking import BlockingAdmin
    from .local_cluster import Cluster

DEFAULT_DATA = Path(".oncelog")


def _check_bootstrap(_type: object, value: str | None) -> None:
    from ..client.cluster_view import parse_bootstrap

    if value is not None:
        parse_bootstrap(value)


Data = Annotated[Path, Parameter(help="The cluster's directory.")]
Format = Annotated[Literal["table", "json"], Parameter(help="How to print the result.")]
Bootstrap = Annotated[
    str | None,
    Parameter(
        help="HOST:PORT,... of any Kafka-compatible cluster, instead of --data.",
        validator=_check_bootstrap,
    ),
]
CommandConfig = Annotated[
    Path | None,
    Parameter(
        help="A client.properties: TLS and SASL by librdkafka's or Java's names. "
        "It may name bootstrap.servers, too.",
    ),
]
Pairs = Annotated[
    list[str] | None,
    Parameter(name=["--config", "-c"], help="key=value; may be given several times.", negative=()),
]


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


def client_config(data: Path, bootstrap: str | None, command_config: Path | None) -> dict[str, Any]:
    """How to connect, as a client's configuration: --command-config, and where to."""
    config: dict[str, Any] = {}
    if command_config is not None:
        from ..client.security.properties_file import known_settings, parse_properties
        from ..client.settings import ADMIN

        names = [name for row in ADMIN for name in (row.name, *row.aliases)]
        try:
            given = parse_properties(command_config.read_text(encoding="utf-8"))
            config, unused = known_settings(given, names)
        except OSError as problem:
            raise Failure(
                f"--command-config {command_config} cannot be read: {problem.strerror}.",
                exit_code=2,
            ) from None
        except ValueError as problem:
            raise Failure(f"{command_config}: {problem}", exit_code=2) from None
        if unused:
            say(f"{command_config}: not used here: {', '.join(unused)}")
    if bootstrap is not None or "bootstrap.servers" not in config:
        config["bootstrap.servers"] = bootstrap_line(data, bootstrap)
    return config


@contextmanager
def admin_of(
    data: Path, bootstrap: str | None, command_config: Path | None = None
) -> Iterator["BlockingAdmin"]:
    """An admin of the cluster that was meant."""
    from .blocking import blocking_admin

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


def require(extra: str, *modules: str) -> None:
    """Failure, with the command that helps, unless the modules of an extra are installed."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        command = f"{Path(sys.executable).name} -m pip install 'oncelog[{extra}]'"
        raise Failure(
            f"This needs {' and '.join(missing)}. Install it with: {command}", exit_code=2
        )


def pairs(texts: Sequence[str] | None) -> dict[str, str]:
    """`key=value` texts as a dictionary."""
    found: dict[str, str] = {}
    for text in texts or ():
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise Failure(f"{text!r} is not key=value.", exit_code=2)
        found[key.strip()] = value.strip()
    return found


def show(
    rows: Sequence[Mapping[str, Any]], output: str, *, columns: Mapping[str, str] | None = None
) -> None:
    """Print rows as a table (`columns`: key -> heading) or as a JSON array."""
    if output == "json":
        print(json.dumps(list(rows), default=str))
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    shown = columns or {key: key for key in (rows[0] if rows else {})}
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for key, heading in shown.items():
        is_number = any(isinstance(row.get(key), (int, float)) for row in rows)
        table.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        # Text, lest the table take "oncelog[bench]" for markup
        table.add_row(*[Text(_cell(row.get(key))) for key in shown])
    console().print(table)


def show_one(values: Mapping[str, Any], output: str) -> None:
    """Print one object as `key value` lines or as JSON."""
    if output == "json":
        print(json.dumps(dict(values), default=str))
        return
    width = max((len(key) for key in values), default=0)
    for key, value in values.items():
        print(f"{key:<{width}}  {_cell(value)}")


def say(text: str) -> None:
    """A word about progress, for the person who waits."""
    print(text, file=sys.stderr, flush=True)


def console() -> Any:
    """The console of stdout; wide when its reader is a program."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    return Console(width=None if is_terminal else 200, highlight=False, soft_wrap=not is_terminal)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value) or "-"
    return str(value)
