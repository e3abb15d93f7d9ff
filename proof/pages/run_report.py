"""The report of a run as plain data in report.json, which `oncelog ui RUN/` reads, without I/O.

A report may come from anywhere, so each part is checked for its form and its size.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

FORMAT = 1
BYTES_MAX, ITEMS_MAX, TABLES_MAX = 16_000_000, 20_000, 100
TIME_MAX_S = 1e9
STATES = ("", "ok", "note", "bad")
Cell = str | int | float | None


class StoryLine(NamedTuple):
    """One event in the explanation of one record. `at_s` is None if its time is unknown."""

    at_s: float | None
    who: str
    what: str


class FaultSpan(NamedTuple):
    """The begin and end of a fault, and its target, which names its row in the timeline."""

    row: str
    start_s: float
    end_s: float
    words: str


class WorkMark(NamedTuple):
    """A moment at which a worker (an instance or a client) did some work."""

    row: str
    at_s: float


class RunCurve(NamedTuple):
    """A curve, with pairs of seconds and value."""

    name: str
    unit: str
    points: Sequence[tuple[float, float]]


class BarChart(NamedTuple):
    """A chart with one bar for each name."""

    title: str
    bars: Sequence[tuple[str, float]]


class RunTable(NamedTuple):
    """A table of figures or of words."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The data of a run's report.

    `state` is the state of the verdict, or "" if nothing was tested.
    """

    command: str
    made_ms: int = 0
    state: str = ""
    verdict: str
    facts: Sequence[tuple[str, Cell]] = ()
    words: Sequence[str] = ()
    story_of: str = ""
    story: Sequence[StoryLine] = ()
    seconds: float = 0.0
    curves: Sequence[RunCurve] = ()
    spans: Sequence[FaultSpan] = ()
    marks: Sequence[WorkMark] = ()
    charts: Sequence[BarChart] = ()
    tables: Sequence[RunTable] = ()

    def as_json(self) -> str:
        """Return report.json, with at most ITEMS_MAX items of a kind."""
        kept = {each.name: getattr(self, each.name) for each in fields(self)}
        cut = {
            n: v if isinstance(v, str) else v[:ITEMS_MAX]
            for n, v in kept.items()
            if isinstance(v, Sequence)
        }
        return json.dumps({"format": FORMAT, **kept, **cut}, separators=(",", ":"))


def read_report(text: str | bytes) -> RunReport:
    """Parse a report.json, or raise ValueError with a sentence for any other document."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"it is not JSON ({problem})") from None
    if not isinstance(found, Mapping) or found.get("format") != FORMAT:
        raise ValueError(f"it is not a report of format {FORMAT}")
    shapes = {each.name: _SHAPES[each.name] for each in fields(RunReport)}
    if missing := shapes.keys() - found.keys():
        raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    read: dict[str, Any] = {}
    for name, shape in shapes.items():
        try:
            read[name] = shape(found[name])
        except ValueError as problem:
            raise ValueError(f"its {name}: {problem}") from None
    return RunReport(**read)


# --- shapes

Shape = Callable[[Any], Any]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a text is expected")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300:
        raise ValueError("a number is expected")
    if not math.isfinite(value):
        raise ValueError("a number is expected")
    return value


def _seconds(value: Any) -> float:
    if abs(_number(value)) > TIME_MAX_S:
        raise ValueError("a time is too large")
    return value


def _state(value: Any) -> str:
    if value not in STATES:
        raise ValueError(f"one of {', '.join(STATES[1:])} is expected")
    return value


def _cell(value: Any) -> Cell:
    return value if value is None or isinstance(value, str) else _number(value)


def _or_none(shape: Shape) -> Shape:
    return lambda value: None if value is None else shape(value)


def _list(shape: Shape, most: int = ITEMS_MAX) -> Shape:
    def read(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError("a list is expected")
        items: list[Any] = value
        if len(items) > most:
            raise ValueError(f"it has {len(items):,} items, and {most:,} at most are shown")
        return [shape(each) for each in items]

    return read


def _tuple(make: Callable[..., Any], *shapes: Shape) -> Shape:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise ValueError("a list is expected")
        items: list[Any] = value
        if len(items) != len(shapes):
            raise ValueError(f"{len(shapes)} values are expected")
        return make(*(shape(each) for shape, each in zip(shapes, items, strict=True)))

    return read


def _table(title: str, headings: list[str], rows: list[list[Cell]]) -> RunTable:
    if not headings or any(len(row) != len(headings) for row in rows):
        raise ValueError("the rows of a table have as many cells as it has headings")
    return RunTable(title, headings, rows)


def _pair(*values: Any) -> tuple[Any, ...]:
    return values


_SHAPES: dict[str, Shape] = {
    "command": _text,
    "made_ms": _number,
    "state": _state,
    "verdict": _text,
    "facts": _list(_tuple(_pair, _text, _cell)),
    "words": _list(_text),
    "story_of": _text,
    "story": _list(_tuple(StoryLine, _or_none(_seconds), _text, _text)),
    "seconds": _seconds,
    "curves": _list(
        _tuple(RunCurve, _text, _text, _list(_tuple(_pair, _seconds, _number))), TABLES_MAX
    ),
    "spans": _list(_tuple(FaultSpan, _text, _seconds, _seconds, _text)),
    "marks": _list(_tuple(WorkMark, _text, _seconds)),
    "charts": _list(_tuple(BarChart, _text, _list(_tuple(_pair, _text, _number))), TABLES_MAX),
    "tables": _list(
        _tuple(_table, _text, _list(_text, TABLES_MAX), _list(_list(_cell, TABLES_MAX))),
        TABLES_MAX,
    ),
}
