"""`oncelog top`, the continuously refreshed view of a cluster in a terminal.

The keys are q to end, s to sort the nodes by the next column, Tab to show the next list, and / to
filter the list (Enter keeps the filter, Esc removes it).
"""

import asyncio
import contextlib
import os
import shutil
import sys
import termios
import time
import tty
from collections.abc import Iterator
from dataclasses import replace

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..wire.printable import printable
from .facts import ClusterFacts
from .observer import Observer
from .top_rows import COLUMNS, LISTS, SORTS, WIDTH_MIN, Choice, listed, node_rows, plain_table

FIRST_LOOK_S = 15.0
REDRAW_S = 1.0
PARTS = ("cluster", "offsets", "transactions", "groups")
ESCAPE, ENTER, TAB, BACKSPACE, CTRL_C = "\x1b", "\r\n", "\t", "\x7f\x08", "\x03"


async def first_look(observer: Observer) -> ClusterFacts:
    """Wait at most 15 s until each part that `top` shows has an answer or an error.

    Return the facts that are then known.
    """
    end_s = time.monotonic() + FIRST_LOOK_S
    while (left_s := end_s - time.monotonic()) > 0:
        known = observer.facts
        told = known.as_of_ms.keys() | known.not_exposed.keys() | known.silent.keys()
        if all(part in told for part in PARTS):
            break
        await observer.changed(left_s)
    return observer.facts


def once(facts: ClusterFacts) -> str:
    """Return the text that `oncelog top --once` prints."""
    return plain_table(node_rows(facts, _now_ms()), _columns())


async def watch(observer: Observer, cluster_name: str) -> None:
    """Show the cluster in the terminal, and refresh the screen until q or Ctrl-C is pressed."""
    keys = Keys()
    with _raw_terminal(), Live(screen=True, auto_refresh=False, transient=True) as live:
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), keys.read)
        try:
            while not keys.is_over:
                live.update(_screen(observer.facts, keys, cluster_name, live.console), refresh=True)
                changed = asyncio.ensure_future(observer.changed(REDRAW_S))
                pressed = asyncio.ensure_future(keys.pressed.wait())
                await asyncio.wait((changed, pressed), return_when=asyncio.FIRST_COMPLETED)
                for waiting in (changed, pressed):
                    waiting.cancel()
                keys.pressed.clear()
        finally:
            loop.remove_reader(sys.stdin.fileno())


class Keys:
    """The keys of `oncelog top`, and the sort, list and filter that the user has chosen."""

    def __init__(self) -> None:
        self.choice = Choice()
        self.is_typing = False
        self.is_over = False
        self.pressed = asyncio.Event()

    def read(self) -> None:
        """Read the pressed keys from the terminal, and call `press` for each."""
        data = os.read(sys.stdin.fileno(), 64).decode(errors="replace")
        self.is_over |= not data  # the terminal is gone
        if data.startswith(ESCAPE) and len(data) > 1:
            data = ""  # an arrow, or another key that means nothing here
        for key in data:
            self.press(key)
        self.pressed.set()

    def press(self, key: str) -> None:
        """Change the sort, list or filter, or request the end of the program, as `key` does."""
        choice = self.choice
        if key == CTRL_C:
            self.is_over = True
        elif self.is_typing:
            if key in ENTER:
                self.is_typing = False
            elif key == ESCAPE:
                self.is_typing, self.choice = False, replace(choice, filter="")
            elif key in BACKSPACE:
                self.choice = replace(choice, filter=choice.filter[:-1])
            elif key.isprintable():
                self.choice = replace(choice, filter=(choice.filter + key)[:60])
        elif key == "q":
            self.is_over = True
        elif key == "s":
            self.choice = replace(choice, sort=_next(SORTS, choice.sort))
        elif key == TAB:
            self.choice = replace(choice, shown=_next(LISTS, choice.shown))
        elif key == "/":
            self.is_typing = True
        elif key == ESCAPE:
            self.choice = replace(choice, filter="")


def _next(names: tuple[str, ...], name: str) -> str:
    return names[(names.index(name) + 1) % len(names)]


def _screen(facts: ClusterFacts, keys: Keys, cluster_name: str, console: Console) -> Group:
    width, height = console.size
    now_ms, choice = _now_ms(), keys.choice
    as_of_ms = facts.oldest_ms("cluster", "offsets", "transactions")
    age = f"{max(0, now_ms - as_of_ms) / 1000:.1f} s old" if as_of_ms else "nothing is known yet"
    head = Text(cluster_name[: max(0, width - len(age) - 2)])
    head.append(" " * max(1, width - len(head.plain) - len(age)) + age, style="dim")
    rows = node_rows(facts, now_ms, choice.sort)
    nodes = _table(COLUMNS, [tuple(str(row[name]) for name in COLUMNS) for row in rows])
    headings, lines = listed(facts, now_ms, choice)
    room = max(1, height - len(rows) - 8)
    below = _table(headings, lines[:room])
    more = f", {len(lines) - room} more" if len(lines) > room else ""
    title = f"{choice.shown}{more}" + (f"  filter: {choice.filter}" if choice.filter else "")
    if keys.is_typing:
        foot = f"filter: {choice.filter}_   Enter keeps it, Esc drops it"
    else:
        foot = f"q end  s sort ({choice.sort})  Tab next list  / filter"
    silent = "; ".join(f"no news of {part}: {printable(why)}" for part, why in facts.silent.items())
    last = Text(foot[:width], style="reverse")
    middle = [Text(title[:width], style="bold"), below] if lines else [Text(f"{title}: none")]
    return Group(head, nodes, *middle, Text(silent[:width], style="red"), last)


def _table(headings: tuple[str, ...], lines: list[tuple[str, ...]]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, expand=False)
    for at, name in enumerate(headings):
        is_number = all(line[at].lstrip("-").isdecimal() or line[at] == "-" for line in lines)
        side = "right" if is_number else "left"
        table.add_column(Text(name), justify=side, no_wrap=True, overflow="ellipsis")
    for line in lines:
        table.add_row(*map(Text, line))  # Text, lest names be taken for markup
    return table


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Put the terminal into a mode in which each key arrives at once.

    Signals still end the program.
    """
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    try:
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _columns() -> int | None:
    """Return the width of the terminal (or COLUMNS), or None if the output is not a terminal."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked):
        return max(WIDTH_MIN, int(asked))
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
