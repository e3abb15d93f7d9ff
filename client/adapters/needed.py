"""Imports the framework of an adapter, or says how to install it."""

from importlib import import_module
from typing import Any

from ...wire.errors import InvalidConfig


def needed(module: str, package: str | None = None) -> Any:
    """Import it. package: what pip calls it, where that is not its first name."""
    try:
        return import_module(module)
    except ModuleNotFoundError as problem:
        root = module.split(".", maxsplit=1)[0]
        if (problem.name or "").split(".")[0] != root:
            raise
        raise InvalidConfig(f"{root} is not installed: pip install '{package or root}'") from None
