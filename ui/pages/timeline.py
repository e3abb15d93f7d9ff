"""The view Timeline: what has happened, on one axis and as a list; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count, takewhile
from typing import Any

from ..facts import ClusterSample
from ..window import MINUTE_MS, MINUTES, TimeWindow
from .curves import Curve, throughput
from .frame import PageFrame, page
from .happened import event_rows
from .markup import Child, Html, element, joined
from .parts import clock, link, number, section, table

WIDTH, LABELS, ROW, CURVE, TOP = 960, 150, 22, 44, 8
LEFT, BREADTH = LABELS + 6, WIDTH - LABELS - 12
ROWS_MAX = 500
TICKS_MAX = 8
TICK_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600)
Document = Mapping[str, Any]


def timeline_page(
    frame: PageFrame,
    events: Document,
    started_ms: int,
    samples: Sequence[ClusterSample] = (),
    window: TimeWindow | None = None,
) -> str:
    """Return the view; started_ms: since when events are seen. window: all of it without one."""
    found = events["events"]
    has_logs = any(each["line"] for each in found)
    headings = ("Time", "Kind", "What", *(("Log",) if has_logs else ()))
    rows = event_rows(found, ROWS_MAX, has_logs=has_logs)
    nothing = "nothing has happened yet" if window is None else "nothing happened then"
    body = table("Events", headings, rows, empty=nothing)
    about = (
        "Events come from the logs of the nodes."
        if has_logs
        else "Events are told by the difference of two looks, every few seconds."
    )
    if window is None:
        ends = min(started_ms, found[-1]["at_ms"] if found else started_ms), frame.now_ms
    else:
        ends = window.start_ms, window.end_ms
    return page(
        frame,
        "Timeline",
        _where(window, ends, frame.now_ms),
        section("axis", "On one axis", _axis(found, samples, ends), about=about),
        section("events", "The newest first", body),
    )


def window_address(start_ms: float, minutes: int) -> str:
    """Return the address of a stretch of time."""
    middle = datetime.fromtimestamp((start_ms + minutes * MINUTE_MS / 2) / 1000)
    return f"/timeline?at={middle:%Y-%m-%dT%H:%M:%S}&minutes={minutes}"


def _where(window: TimeWindow | None, ends: tuple[int, int], now_ms: int) -> Html:
    """The form that asks for a time, and the steps from here."""
    minutes = window.minutes if window is not None else 5
    options = [
        element("option", f"{each} min", value=each, selected=each == minutes) for each in MINUTES
    ]
    middle = datetime.fromtimestamp((ends[0] + ends[1]) / 2_000)
    form = element(
        "form",
        element("label", "Around ", for_="at"),
        element(
            "input",
            id="at",
            name="at",
            placeholder="14:03",
            pattern=r"[0-9:T\-]*",
            value=f"{middle:%Y-%m-%dT%H:%M:%S}" if window is not None else None,
        ),
        element("label", " show ", for_="minutes"),
        element("select", options, id="minutes", name="minutes"),
        element("button", "Look"),
        method="get",
        class_="where",
    )
    return element("section", form, _steps(window, now_ms), aria_label="Which time to look at")


def _steps(window: TimeWindow | None, now_ms: int) -> Html:
    steps: list[Child] = []
    if window is None:
        steps += [joined(link(f"/timeline?minutes={m}", f"last {m} min"), " ") for m in MINUTES]
    else:
        start_ms, minutes = window.start_ms, window.minutes
        half_ms = minutes * MINUTE_MS / 2
        at = MINUTES.index(minutes)
        steps += [link(window_address(start_ms - half_ms, minutes), "earlier"), " "]
        if window.end_ms < now_ms:
            steps += [link(window_address(start_ms + half_ms, minutes), "later"), " "]
        for step, words in ((at - 1, "closer"), (at + 1, "wider")):
            if 0 <= step < len(MINUTES):
                new_start_ms = start_ms + half_ms - MINUTES[step] * MINUTE_MS / 2
                steps += [link(window_address(new_start_ms, MINUTES[step]), words), " "]
        steps.append(link("/timeline", "everything"))
    return element("p", steps, class_="ends")


def _axis(
    events: Sequence[Document], samples: Sequence[ClusterSample], ends: tuple[int, int]
) -> Html:
    start_ms, end_ms = ends
    curves = throughput([s for s in samples if start_ms <= s.at_ms <= end_ms])
    curves = [each for each in curves if each.points]
    if not events and not curves:
        return element("p", "Nothing to draw yet.", class_="empty")
    kinds = sorted({each["kind"] for each in events})
    height = TOP + len(curves) * CURVE + len(kinds) * ROW + 4
    axis = _Axis(start_ms, max(1, end_ms - start_ms))
    picture = element(
        "svg",
        element(
            "title",
            f"{len(events)} events of {len(kinds)} kinds; the newest are in the table below",
        ),
        [axis.tick(at_ms, height) for at_ms in _ticks(start_ms, end_ms)],
        [axis.curve(curve, TOP + at * CURVE) for at, curve in enumerate(curves)],
        [
            axis.events(
                kind,
                [each for each in events if each["kind"] == kind],
                TOP + len(curves) * CURVE + (at + 1 / 2) * ROW,
            )
            for at, kind in enumerate(kinds)
        ],
        viewBox=f"0 0 {WIDTH} {height + 20}",
        role="img",
        class_="timeline",
    )
    inner = element(
        "div", picture, class_="wide", tabindex="0", role="region", aria_label="Events on one axis"
    )
    return element(
        "div", inner, element("p", clock(start_ms), " to ", clock(end_ms), class_="ends")
    )


@dataclass(frozen=True, slots=True)
class _Axis:
    """Draws what belongs to one stretch of time, each part in a row of its own."""

    start_ms: int
    span_ms: int

    def _x(self, at_ms: float) -> str:
        return f"{LEFT + (at_ms - self.start_ms) / self.span_ms * BREADTH:.1f}"

    def tick(self, at_ms: int, height: int) -> Html:
        """A time, which leads to the minute around it."""
        x = self._x(at_ms)
        words = f"{datetime.fromtimestamp(at_ms / 1000):%H:%M:%S}"
        written = element("text", words, x=x, y=height + 14, class_="mark tick")
        line = element("line", x1=x, x2=x, y1=TOP, y2=height, class_="mark")
        address = window_address(at_ms - MINUTE_MS / 2, 1)
        return joined(line, element("a", written, href=address))

    def curve(self, curve: Curve, y: int) -> Html:
        """A curve with its largest value in words."""
        most = f"at most {number(curve.highest)} {curve.unit}"
        box = LEFT, y + 4, BREADTH, CURVE - 10
        return element(
            "g",
            element("title", f"{curve.name}: {most}"),
            element("text", curve.name, x=0, y=y + 16, class_="label"),
            element("text", most, x=0, y=y + 32, class_="mark"),
            curve.line(self.start_ms, self.start_ms + self.span_ms, box),
            class_="curve",
        )

    def events(self, kind: str, events: Sequence[Document], y: float) -> Html:
        """Events of one kind as points, each with its sentence."""
        points = [
            element(
                "circle",
                element("title", each["sentence"]),
                cx=self._x(each["at_ms"]),
                cy=y,
                r=4,
                class_="event",
            )
            for each in events
        ]
        label = element("text", kind, x=0, y=y + 4, class_="label")
        return joined(
            label, element("line", x1=LABELS, x2=WIDTH, y1=y, y2=y, class_="base"), points
        )


def _ticks(start_ms: int, end_ms: int) -> list[int]:
    """Return round times between two."""
    step_ms = next(
        (s * 1000 for s in TICK_S if (end_ms - start_ms) / (s * 1000) <= TICKS_MAX),
        max(TICK_S[-1] * 1000, (end_ms - start_ms) // TICKS_MAX),
    )
    first = -(-start_ms // step_ms) * step_ms
    return list(takewhile(lambda at_ms: at_ms <= end_ms, count(first, step_ms)))
