"""Results on stdout, as a table or as JSON, and progress on stderr.

Names and values come from clients, so all output is made printable here, except JSON, which has its
own escapes. In a terminal, lines are wrapped between words and tables drop columns. A table that is
still too wide is shown in blocks, one for each row. For a program, each row and each line is one
line.
"""

import json
import os
import re
import select
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from ...wire.printable import printable
from .ends.flag import Flag

WIDTH_MIN = 20
TEXT_WIDTH = 20  # the least width of a column of sentences
LINE_MAX = 600  # characters, with up to 4 bytes each, so that a line is below select.PIPE_BUF
GAP, EDGES = 3, 2  # of rich's SIMPLE_HEAD: between columns, and at both ends
_ABOUT = re.compile(r" *\S+(?: \S+)* {2,}(?=\S)")  # the subject of a line, before its sentence


def show(
    rows: Sequence[Mapping[str, Any]],
    output: str,
    *,
    columns: Mapping[str, str] | None = None,
    optional: Sequence[str] = (),
) -> None:
    """Print rows as a table, or as a JSON array if `output` is "json".

    columns: headings by key. optional: the columns that a narrow terminal may drop, in the order in
    which they are dropped.
    """
    if output == "json":
        print(json.dumps(list(rows), default=str))
        return
    headings = {
        key: printable(heading)
        for key, heading in (columns or {key: key for key in (rows[0] if rows else {})}).items()
    }
    cells = [{key: cell(row.get(key)) for key in headings} for row in rows]
    width = terminal_width(sys.stdout)
    widths = fitted(headings, cells, width, optional)
    if widths is None:
        _print_blocks(headings, cells)
        return
    numbers = {key for key in widths if any(isinstance(row.get(key), (int, float)) for row in rows)}
    _print_table(headings, cells, widths, numbers)
    if dropped := [heading for key, heading in headings.items() if key not in widths]:
        say(f"a terminal of {width} columns does not show: {', '.join(dropped)}")


def fitted(
    headings: Mapping[str, str],
    cells: Sequence[Mapping[str, str]],
    width: int | None,
    optional: Sequence[str] = (),
) -> dict[str, int] | None:
    """Return the width of each column that a table shows, or None if it cannot fit in `width`.

    Optional columns are left out in their order until the rest fits. Only texts of several words
    are wrapped, between words. Without a width, everything is on one line.
    """
    texts = {key: [headings[key], *(row[key] for row in cells)] for key in headings}
    whole = {key: max(map(_width, each)) for key, each in texts.items()}
    if width is None:
        return whole
    least = {key: _least_width(*each) for key, each in texts.items()}
    kept = list(headings)
    waiting = [key for key in optional if key in headings]
    while _total(least, kept) > width:
        if not waiting:
            return None
        kept.remove(waiting.pop(0))
    widths = {key: least[key] for key in kept}
    spare = width - _total(least, kept)
    for key in sorted(kept, key=lambda each: whole[each] - least[each]):  # small wants first
        more = min(spare, whole[key] - least[key])
        widths[key] += more
        spare -= more
    return widths


def show_one(values: Mapping[str, Any], output: str) -> None:
    """Print one object as `key value` lines or as JSON."""
    if output == "json":
        print(json.dumps(dict(values), default=str))
        return
    width = max((len(key) for key in values), default=0)
    for key, value in values.items():
        tell(f"{key:<{width}}  {cell(value)}")


def tell(*lines: str, end: str = "\n", is_wrapped: bool = True) -> None:
    """Print lines of a result to stdout, each on one line even if its text has a newline.

    Control characters are escaped. `is_wrapped` is False for text that users paste unchanged.
    """
    width = terminal_width(sys.stdout) if is_wrapped else None
    print("\n".join(wrapped(printable(line), width) for line in lines), end=end, flush=True)


def say(*lines: str) -> None:
    """Print lines about progress to stderr."""
    width = terminal_width(sys.stderr)
    text = "\n".join(wrapped(printable(line), width) for line in lines)
    print(text, file=sys.stderr, flush=True)


@contextmanager
def closable(stream: TextIO) -> Iterator[None]:
    """Let the block print to a stream without a reader, so that the exit code stays the same."""
    try:
        yield
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class LoopLines:
    """Prints lines from an event loop, which must not wait for the reader of a full pipe.

    Lines for which a pipe has no room are left out and counted.
    """

    def __init__(self) -> None:
        self._missing = 0

    def tell(self, line: str) -> None:
        """Print a line as `tell` does."""
        self._print(line, sys.stdout, tell)

    def say(self, line: str) -> None:
        """Print a line as `say` does."""
        self._print(line, sys.stderr, say)

    def report_missing(self) -> None:
        """Print how many lines were left out. This may wait for the reader."""
        if self._missing:
            say(f"{self._missing} lines are missing here, because their reader was too slow")

    def _print(self, line: str, stream: TextIO, write: Callable[[str], object]) -> None:
        line = printable(line)  # before the cut, since an escaped character is up to 10 long
        if _is_ready(stream):
            write(line if len(line) <= LINE_MAX else f"{line[:LINE_MAX]} ...")
        else:
            self._missing += 1


def _is_ready(stream: TextIO) -> bool:
    """Return whether a stream takes select.PIPE_BUF bytes without waiting."""
    try:
        return bool(select.select([], [stream.fileno()], [], 0)[1])
    except (OSError, ValueError):  # not a file, but an object of a test
        return True


@contextmanager
def never_silent(every_s: float = 5.0) -> Iterator[Callable[[str], None]]:
    """Yield a function like `say`, and repeat its last message after each `every_s` of silence."""
    spoke, over = Flag(), Flag()
    words, since_s = "at work", time.monotonic()

    def say_and_keep(text: str) -> None:
        nonlocal words, since_s
        words, since_s = text, time.monotonic()
        spoke.set()
        say(text)

    def repeat() -> None:
        while not over.is_set():
            if not spoke.wait(every_s) and not over.is_set():
                say(f"still: {words} ({time.monotonic() - since_s:.0f} s)")
            spoke.clear()

    thread = threading.Thread(target=repeat, name="oncelog-progress", daemon=True)
    thread.start()
    try:
        yield say_and_keep
    finally:
        over.set()
        spoke.set()


def wrapped(line: str, width: int | None) -> str:
    """Return a text wrapped between words, with further lines indented to the start of the text."""
    if width is None or _width(line) <= width:
        return line
    about = _ABOUT.match(line)
    indent = about.end() if about else len(line) - len(line.lstrip()) + 2
    if indent > width // 3:
        indent = min(2, width // 3)
    pieces = textwrap.wrap(
        line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(pieces)


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, such as 1 record or 2 records."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def terminal_width(stream: TextIO) -> int | None:
    """Return the number of columns of a stream's terminal, or None for another stream."""
    if not stream.isatty():
        return None
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked):
        return max(WIDTH_MIN, int(asked))
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return max(WIDTH_MIN, columns) if columns else 80


def cell(value: Any) -> str:
    """Return a value as text for a table, with "-" for None and "yes" or "no" for a bool."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, (list, tuple)):
        return ",".join(map(cell, value)) or "-"
    return printable(str(value))


def _least_width(heading: str, *cells: str) -> int:
    """Return the least width to which a table may narrow a column.

    It is the width of the longest word. A column with cells of several words keeps TEXT_WIDTH, or
    the width of its longest cell if that is smaller.
    """
    words = [word for text in (heading, *cells) for word in text.split()]
    longest = max(map(_width, words), default=0)
    if not any(" " in text for text in cells):
        return longest
    return max(longest, min(TEXT_WIDTH, max(map(_width, cells))))


def _print_table(
    headings: Mapping[str, str],
    cells: Sequence[Mapping[str, str]],
    widths: Mapping[str, int],
    numbers: set[str],
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for key, width in widths.items():
        side = "right" if key in numbers else "left"
        table.add_column(Text(headings[key]), justify=side, overflow="fold", width=width)
    for row in cells:
        # Text, or the table would take brackets for markup
        table.add_row(*[Text(row[key]) for key in widths])
    is_terminal = sys.stdout.isatty()
    console = Console(width=_total(widths, widths), highlight=False, soft_wrap=not is_terminal)
    console.print(table)


def _print_blocks(headings: Mapping[str, str], cells: Sequence[Mapping[str, str]]) -> None:
    """Print each row as lines of heading and value."""
    width = max(map(_width, headings.values()), default=0)
    for number, row in enumerate(cells):
        if number:
            tell("")
        for key, heading in headings.items():
            tell(f"{heading:<{width}}  {row[key]}")
    if not cells:
        tell(" ".join(headings.values()))


def _total(widths: Mapping[str, int], kept: Sequence[str] | Mapping[str, int]) -> int:
    """Return the width of a table of these columns."""
    return sum(widths[key] for key in kept) + GAP * max(0, len(kept) - 1) + EDGES


def _width(text: str) -> int:
    """Return the width of a text in columns. Letters of some scripts take two columns."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
