"""The command-line options that the programs of the pipeline share, with options for Spark."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..client.security.client_file import read_client_file
from ..wire.security.secret import Secret


def pair(text: str) -> tuple[str, str]:
    """Parse NAME=VALUE into a pair, as the `type` of an argparse option."""
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def add_pairs(parser: argparse.ArgumentParser, option: str, help_text: str | None = None) -> None:
    """Add an option NAME=VALUE that may be repeated. Its value is the list of pairs."""
    parser.add_argument(
        option, action="append", default=[], type=pair, metavar="NAME=VALUE", help=help_text
    )


def add_login_options(parser: argparse.ArgumentParser, *, is_required: bool = True) -> None:
    """Add the options for the cluster and the login, which `login_of` reads.

    is_required: the parser itself requires one of --bootstrap and --command-config.
    """
    parser.add_argument("--bootstrap", help="Addresses of some brokers, as HOST:PORT,...")
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="A client.properties with TLS and SASL by librdkafka's or Java's names, and maybe "
        "bootstrap.servers.",
    )
    parser.set_defaults(needs_login=is_required)


def login_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the client configuration of --command-config and --bootstrap, by dotted names.

    Raises ValueError if neither option has the address of a broker.
    """
    config: dict[str, Any] = {}
    if options.command_config is not None:
        config, unused = read_client_file(options.command_config)
        if unused:
            names = ", ".join(unused)
            print(
                f"{options.command_config}: settings that oncelog does not use: {names}",
                file=sys.stderr,
            )
    if options.bootstrap:
        config["bootstrap.servers"] = options.bootstrap
    if options.needs_login and not config.get("bootstrap.servers"):
        raise ValueError("say which cluster: --bootstrap HOST:PORT, or in --command-config")
    return config


def with_prefix(config: Mapping[str, Any]) -> dict[str, str]:
    """Return a client's configuration as Spark options, named `kafka.*`.

    All values are text, also secrets, which Spark redacts by name.
    """
    return {
        f"kafka.{name}": value.reveal() if isinstance(value, Secret) else str(value)
        for name, value in config.items()
    }


def add_spark_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--master",
        help="Spark's master, e.g. local[4] or spark://HOST:7077. The default is this machine.",
    )
    add_pairs(parser, "--conf", "A configuration of Spark. The option may be repeated.")


def spark_confs(options: argparse.Namespace) -> dict[str, str]:
    """Return the keywords of `spark_session` for the parsed options."""
    return ({"master": options.master} if options.master else {}) | dict(options.conf)
