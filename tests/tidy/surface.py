"""The public commands, options and Python names, compared with tests/tidy/surface.txt.

After an intended change, write the file anew: .venv/bin/python -m tests.tidy.surface
"""

import inspect
from collections.abc import Iterator
from pathlib import Path

from cyclopts import App

import oncelog
from oncelog import client

RECORDED = Path(__file__).with_name("surface.txt")


def _commands(app: App, path: tuple[str, ...] = ()) -> Iterator[str]:
    if app.default_command:
        arguments = app.assemble_argument_collection(parse_docstring=False)
        options = sorted(" ".join(sorted(one.names)) for one in arguments if one.show)
        yield " | ".join([" ".join(("oncelog", *path)), *options])
    for name in sorted(app):
        if not name.startswith("-"):
            yield from _commands(app[name], (*path, name))


def _members(name: str, value: object) -> Iterator[str]:
    if not inspect.isclass(value):
        yield f"{name}{_parameters(value)}"
        return
    yield f"{name}{_parameters(value)}"
    for member in sorted(dir(value)):
        if not member.startswith("_") and callable(getattr(value, member)):
            yield f"{name}.{member}{_parameters(getattr(value, member))}"
        elif not member.startswith("_"):
            yield f"{name}.{member}"


def _parameters(value: object) -> str:
    """Return a function's parameter names in parentheses, without annotations and defaults."""
    if not callable(value):
        return ""
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:
        return "(...)"
    return f"({', '.join(p.name for p in parameters if p.name != 'self')})"


def surface() -> str:
    from oncelog.cli.main import build

    public = {f"oncelog.{name}": getattr(oncelog, name) for name in ("Cluster", "prove")}
    public |= {f"oncelog.client.{name}": getattr(client, name) for name in client._WHERE}
    lines = [*_commands(build())]
    for name, value in sorted(public.items()):
        lines += _members(name, value)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    RECORDED.write_text(surface(), encoding="utf-8")
