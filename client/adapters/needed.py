"""Imports the framework of an adapter, or raises an error that says how to install it."""

from importlib import import_module
from typing import Any

from ...wire.errors import InvalidConfig


def needed(module: str, package: str | None = None) -> Any:
    """Import a module. package: its name for pip, where that is not the module's first name."""
    try:
        return import_module(module)
    except ModuleNotFoundError as problem:
        root = module.split(".", maxsplit=1)[0]
        if (problem.name or "").split(".")[0] != root:
            raise
        raise InvalidConfig(f"{root} is not installed: pip install '{package or root}'") from None
