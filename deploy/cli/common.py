"""What the commands share: options, and what is needed for them."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ..cluster.failure import Failure

DEFAULT_DATA = Path(".oncelog")


def _check_bootstrap(_type: object, value: str | None) -> None:
    from ...client.cluster_view import parse_bootstrap

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
