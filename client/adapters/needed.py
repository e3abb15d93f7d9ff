"""Import of an adapter's framework, with an error that says how to install a missing framework."""

from importlib import import_module
from typing import Any

from ...wire.errors import InvalidConfig


def needed(module: str, package: str | None = None) -> Any:
    """Import and return a module, or raise InvalidConfig if it is not installed.

    `package` is the name of the module's package for pip, if it differs from the module's name.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as problem:
        root = module.split(".", maxsplit=1)[0]
        if (problem.name or "").split(".")[0] != root:
            raise
        raise InvalidConfig(f"{root} is not installed: pip install '{package or root}'") from None
