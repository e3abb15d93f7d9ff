"""A picture of a time range, with curves above, and rows of events below, without I/O.

Each curve and each kind of event has its own row with its name, so no meaning depends on colour.
Times are in milliseconds, and their zero may be any moment.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import NamedTuple

from .markup import Html, element, joined
from .parts import number

WIDTH, LABELS, ROW, CURVE, TOP = 960, 150, 22, 44, 8
LEFT, BREADTH = LABELS + 6, WIDTH - LABELS - 12
TICKS_MAX, LINE_POINTS_MAX, LETTERS_MAX = 8, 400, 22
SPAN_WIDTH_MIN = 3.0
TICK_S = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 86_400,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve, with its name, its unit, and points of (ms, value)."""

    name: str
    unit: str
    points: Sequence[tuple[int, float]]

    @property
    def highest(self) -> float:
        return max((value for _, value in self.points), default=0.0)

    def line(self, start_ms: int, end_ms: int, box: tuple[float, float, float, float]) -> Html:
        """Draw the curve between two times into a box of x, y, width and height."""
        x, y, width, height = box
        at_once = -(-len(self.points) // LINE_POINTS_MAX)  # of which the highest is drawn
        shown = self.points
        if at_once > 1:
            groups = (shown[n : n + at_once] for n in range(0, len(shown), at_once))
            shown = [max(group, key=lambda point: point[1]) for group in groups]
        span, top = max(1, end_ms - start_ms), max(self.highest, 1e-9)
        points = " ".join(
            f"{x + (t - start_ms) / span * width:.1f},{y + height - v / top * height:.1f}"
            for t, v in shown
        )
        return element("polyline", points=points, class_="line")


class AxisRow(NamedTuple):
    """A row of a timeline, with events at a moment, events with a duration, and marks of work."""

    name: str
    points: Sequence[tuple[int, str]] = ()
    spans: Sequence[tuple[int, int, str]] = ()
    marks: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAxis:
    """A time range that is drawn as a horizontal axis.

    label: a function that returns a time as text. address: a function that returns the link of a
    time, if any.
    """

    start_ms: int
    end_ms: int
    label: Callable[[int], str]
    address: Callable[[int], str] | None = None

    def picture(self, title: str, curves: Sequence[Curve], rows: Sequence[AxisRow]) -> Html:
        """Return the axis with its curves and rows as one SVG picture.

        `title` is its text alternative.
        """
        below = TOP + len(curves) * CURVE
        height = below + len(rows) * ROW + 4
        drawn = element(
            "svg",
            element("title", title),
            [self._tick(at_ms, height) for at_ms in ticks(self.start_ms, self.end_ms)],
            [self._curve(curve, TOP + at * CURVE) for at, curve in enumerate(curves)],
            [self._row(row, below + (at + 1 / 2) * ROW) for at, row in enumerate(rows)],
            viewBox=f"0 0 {WIDTH} {height + 20}",
            role="img" if self.address is None else "group",  # an image hides its links
            class_="timeline",
        )
        return element(
            "div", drawn, class_="wide", tabindex="0", role="region", aria_label="On one axis"
        )

    def _x(self, at_ms: float) -> float:
        share = (at_ms - self.start_ms) / max(1, self.end_ms - self.start_ms)
        return LEFT + min(max(share, 0.0), 1.0) * BREADTH

    def _tick(self, at_ms: int, height: int) -> Html:
        x = f"{self._x(at_ms):.1f}"
        written = element("text", self.label(at_ms), x=x, y=height + 14, class_="mark tick")
        line = element("line", x1=x, x2=x, y1=TOP, y2=height, class_="mark")
        if self.address is not None:
            written = element("a", written, href=self.address(at_ms))
        return joined(line, written)

    def _curve(self, curve: Curve, y: int) -> Html:
        """Draw a curve with its largest value in words."""
        most = f"at most {number(curve.highest)} {curve.unit}"
        box = LEFT, y + 4, BREADTH, CURVE - 10
        return element(
            "g",
            element("title", f"{curve.name}: {most}"),
            element("text", curve.name, x=0, y=y + 16, class_="label"),
            element("text", most, x=0, y=y + 32, class_="mark"),
            curve.line(self.start_ms, self.end_ms, box),
            class_="curve",
        )

    def _row(self, row: AxisRow, y: float) -> Html:
        """Draw events as points, faults as bars, and work as strokes.

        An event or fault has a sentence as its title.
        """
        name = row.name if len(row.name) <= LETTERS_MAX else f"{row.name[: LETTERS_MAX - 1]}…"
        strokes = [
            element("rect", x=f"{self._x(at):.1f}", y=y - 4, width=1, height=8, class_="work")
            for at in row.marks
        ]
        return joined(
            element("text", name, x=0, y=y + 4, class_="label"),
            element("line", x1=LABELS, x2=WIDTH, y1=y, y2=y, class_="base"),
            strokes,
            [self._span(span, y) for span in row.spans],
            [self._point(point, y) for point in row.points],
        )

    def _span(self, span: tuple[int, int, str], y: float) -> Html:
        x, end = self._x(span[0]), self._x(span[1])
        return element(
            "rect",
            element("title", span[2]),
            x=f"{x:.1f}",
            y=y - 8,
            width=f"{max(SPAN_WIDTH_MIN, end - x):.1f}",
            height=16,
            class_="span",
        )

    def _point(self, point: tuple[int, str], y: float) -> Html:
        title = element("title", point[1])
        return element("circle", title, cx=f"{self._x(point[0]):.1f}", cy=y, r=4, class_="event")


def ticks(start_ms: int, end_ms: int) -> list[int]:
    """Return round times at equal distances between the two times, for the axis."""
    step_ms = next(
        (s * 1000 for s in TICK_S if (end_ms - start_ms) / (s * 1000) <= TICKS_MAX),
        max(TICK_S[-1] * 1000, (end_ms - start_ms) // TICKS_MAX),
    )
    first = -(-start_ms // step_ms) * step_ms
    return list(takewhile(lambda at_ms: at_ms <= end_ms, count(first, step_ms)))
