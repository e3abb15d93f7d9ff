"""The picture of a partition, with a bar for each replica, open transaction and consumer group.

All bars share one axis of offsets. Its window has the last offsets of the log, to scale, from
before the last stable offset on. A short part of the axis before the window stands for all earlier
offsets. The file does no I/O.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...proof.pages.markup import NOTHING, Html, element, joined
from ...proof.pages.parts import duration, number

ROW, TOP, BOTTOM = 30, 26, 24
BEFORE_MIN = 20  # offsets to scale before the last stable offset
ROWS_MAX = 60  # of transactions, and of readers
Row = Mapping[str, Any]


class Shape(NamedTuple):
    """The sizes of the picture in pixels. There is one shape for screens and one for phones."""

    name: str
    width: int
    labels: int
    broken: int  # represents all offsets before the window
    letters: int  # of a label
    words: int  # as long as the words at a transaction may get


SHAPES = (Shape("wide", 960, 190, 70, 24, 330), Shape("narrow", 366, 112, 30, 15, 76))


class Axis:
    """A mapping from offsets to horizontal positions. It is linear from the offset `window` on."""

    def __init__(self, shape: Shape, start: int, stable: int, end: int) -> None:
        self.shape = shape
        self.start, self.end = start, max(end, start)
        self.window = max(start, min(stable, end) - max(BEFORE_MIN, (end - stable) // 2))
        self.is_broken = self.window > start
        self._left = shape.labels + (shape.broken if self.is_broken else 0)

    def x(self, offset: float) -> float:
        """Return the horizontal position of an offset."""
        if offset >= self.window:
            share = (min(offset, self.end) - self.window) / max(1, self.end - self.window)
            return self._left + share * (self.shape.width - 8 - self._left)
        share = (max(offset, self.start) - self.start) / max(1, self.window - self.start)
        return self.shape.labels + share * self.shape.broken


def strips(row: Row) -> Html:
    """Return the picture of a partition as HTML, once for screens and once for phones.

    row: the partition's row in the result of `documents.partition`.
    """
    end, stable = row["high_watermark"], row["last_stable"]
    if end is None or stable is None:
        return element("p", "no leader tells offsets", class_="empty")
    opened: Sequence[Row] = row["open_transactions"]
    readers: Sequence[Row] = row["groups"]
    more = max(0, len(opened) - ROWS_MAX) + max(0, len(readers) - ROWS_MAX)
    words = element("p", f"and {more} more, in the tables below") if more else NOTHING
    return joined([_picture(row, shape, stable, end) for shape in SHAPES], words)


def _picture(row: Row, shape: Shape, stable: int, end: int) -> Html:
    start = row["log_start"] or 0
    axis = Axis(shape, start, stable, end)
    drawn: list[Html] = [_replica(axis, each, row) for each in row["replicas"]]
    drawn += [_transaction(axis, each, end) for each in row["open_transactions"][:ROWS_MAX]]
    drawn += [_reader(axis, each, stable, end) for each in row["groups"][:ROWS_MAX]]
    placed = [
        element("g", each, transform=f"translate(0,{TOP + at * ROW})")
        for at, each in enumerate(drawn)
    ]
    height = TOP + len(drawn) * ROW + BOTTOM
    picture = element(
        "svg",
        element("title", _in_words(row)),
        _hatching(shape),
        _marks(axis, start, stable, end, height),
        placed,
        viewBox=f"0 0 {shape.width} {height}",
        role="img",
        class_="strips",
    )
    return element(
        "div",
        picture,
        class_=f"wide on-{shape.name}",
        tabindex="0",
        role="region",
        aria_label="Strips of offsets",
    )


def _in_words(row: Row) -> str:
    return (
        f"Log from offset {row['log_start']} to {row['high_watermark']}; readers of committed data "
        f"stop at {row['last_stable']}; {len(row['open_transactions'])} open transactions, "
        f"{len(row['groups'])} groups"
    )


def _hatching(shape: Shape) -> Html:
    line = element("path", d="M0 6 L6 0", class_="hatch-line")
    name = f"hatch-{shape.name}"
    pattern = element("pattern", line, id=name, width=6, height=6, patternUnits="userSpaceOnUse")
    return element("defs", pattern)


def _marks(axis: Axis, start: int, stable: int, end: int, height: int) -> Html:
    """Return vertical lines through all bars, each with its offset.

    They are at the LSO, at a log start before the window, and at a high watermark above the LSO.
    """
    marks = [(axis.x(stable), f"LSO {number(stable)}", "mark stable", "end")]
    if axis.is_broken:
        marks.append((axis.x(start), f"start {number(start)}", "mark", "start"))
    if end > stable:
        marks.append((axis.x(end), f"HW {number(end)}", "mark", "end"))
    elif end == stable:
        marks[0] = (axis.x(stable), f"LSO = HW {number(end)}", "mark stable", "end")
    found: list[Html] = []
    for x, words, kind, anchor in marks:
        y = 12 if not kind.endswith("stable") or end == stable else height - 6
        found.append(
            element("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=16, y2=height - BOTTOM, class_=kind)
        )
        found.append(element("text", words, x=f"{x:.1f}", y=y, text_anchor=anchor, class_=kind))
    if axis.is_broken:
        x = axis.shape.labels + axis.shape.broken
        for shift in (0, 4):
            found.append(
                element(
                    "line", x1=x + shift - 4, x2=x + shift, y1=height - BOTTOM, y2=20, class_="cut"
                )
            )
    return joined(*found)


def _replica(axis: Axis, replica: Row, row: Row) -> Html:
    end = row["high_watermark"] - (replica["offset_lag"] or 0)
    stable = min(row["last_stable"], end)
    role = "leader" if replica["is_leader"] else "in sync" if replica["in_isr"] else "out of sync"
    kind = "log" if replica["in_isr"] else "log away"
    name = "node " if axis.shape.name == "wide" else ""
    label = f"{name}{replica['node']} · {role}"
    lag = replica["offset_lag"]
    title = f"{label}: to offset {end}" + (f", {lag} behind the leader" if lag else "")
    return joined(
        _label(axis, label, "" if replica["in_isr"] else "away"),
        _bar(axis, axis.start, stable, f"{kind} readable", title),
        _bar(axis, stable, end, f"{kind} held", title) if end > stable else NOTHING,
    )


def _transaction(axis: Axis, holder: Row, end: int) -> Html:
    name = holder["transactional_id"] or f"producer {holder['producer_id']}"
    x = axis.x(holder["first_offset"])
    words = short = "hangs" if holder["is_hanging"] else f"open {duration(holder['age_ms'])}"
    if holder["ends_in_ms"] is not None:
        words += f", aborted in {duration(max(0, holder['ends_in_ms']))}"
    title = f"{name}: since offset {holder['first_offset']}, {words}"
    inside_end = x > axis.shape.width - axis.shape.words
    text = element(
        "text",
        words if axis.shape.name == "wide" else short,
        x=f"{x - 6 if inside_end else x + 6:.1f}",
        y=17,
        text_anchor="end" if inside_end else "start",
        class_="on-bar" if not inside_end else "beside",
    )
    kind = "open hanging" if holder["is_hanging"] else "open"
    bar = _bar(axis, holder["first_offset"], end, kind, title)
    return joined(_label(axis, name, "txn"), bar, text)


def _reader(axis: Axis, reader: Row, stable: int, end: int) -> Html:
    offset = reader["committed"]
    x = axis.x(offset)
    title = (
        f"{reader['group']} has committed {offset}: {max(0, stable - offset)} to the last stable "
        f"offset, {max(0, end - offset)} to the end"
    )
    line = element("line", x1=axis.shape.labels, x2=f"{x:.1f}", y1=13, y2=13, class_="read")
    dot = element("circle", element("title", title), cx=f"{x:.1f}", cy=13, r=5, class_="reader")
    is_late = x > axis.shape.width - (120 if axis.shape.name == "wide" else 50)
    words = element(
        "text",
        number(offset),
        x=f"{x - 10 if is_late else x + 10:.1f}",
        y=17,
        text_anchor="end" if is_late else "start",
        class_="beside",
    )
    return joined(_label(axis, reader["group"], "group"), line, dot, words)


def _label(axis: Axis, words: str, kind: str) -> Html:
    most = axis.shape.letters
    short = words if len(words) <= most else f"{words[: most - 2]}…"
    return element("text", element("title", words), short, x=0, y=17, class_=f"label {kind}")


def _bar(axis: Axis, first: int, end: int, kind: str, title: str) -> Html:
    """Return a bar between two offsets.

    The bar of an open transaction has a least width, so it is always visible.
    """
    x, to = axis.x(first), axis.x(end)
    width = max(3.0 if kind.startswith("open") else 0.0, to - x)
    size = {"x": f"{x:.1f}", "width": f"{width:.1f}", "height": 20, "y": 3}
    plain = element("rect", element("title", title), **size, rx=2, class_=kind)
    if "held" not in kind and "hanging" not in kind:
        return plain
    return joined(
        plain, element("rect", **size, fill=f"url(#hatch-{axis.shape.name})", class_="hatch")
    )
