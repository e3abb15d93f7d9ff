"""Results on stdout, as a table or as JSON; words about progress on stderr.

All but JSON, which escapes by itself, is made printable here: names and values are clients'.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ...wire.printable import printable


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
        table.add_column(
            Text(printable(heading)), justify="right" if is_number else "left", overflow="fold"
        )
    for row in rows:
        # Text, lest the table take "oncelog[bench]" for markup
        table.add_row(*[Text(cell(row.get(key))) for key in shown])
    console().print(table)


def show_one(values: Mapping[str, Any], output: str) -> None:
    """Print one object as `key value` lines or as JSON."""
    if output == "json":
        print(json.dumps(dict(values), default=str))
        return
    width = max((len(key) for key in values), default=0)
    for key, value in values.items():
        tell(f"{key:<{width}}  {cell(value)}")


def tell(*lines: str, end: str = "\n") -> None:
    """Print lines of a result; a line end within one is escaped as other control characters are."""
    print("\n".join(map(printable, lines)), end=end, flush=True)


def say(*lines: str) -> None:
    """Print lines about progress, for the person who waits."""
    print("\n".join(map(printable, lines)), file=sys.stderr, flush=True)


def console() -> Any:
    """The console of stdout; wide when its reader is a program."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    return Console(width=None if is_terminal else 200, highlight=False, soft_wrap=not is_terminal)


def cell(value: Any) -> str:
    """Return a value as it stands in a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, (list, tuple)):
        return ",".join(map(cell, value)) or "-"
    return printable(str(value))
