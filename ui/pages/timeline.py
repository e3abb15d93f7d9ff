"""The view Timeline: what has happened, on one axis and as a list; pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from .frame import PageFrame, page
from .happened import event_rows
from .markup import Html, element
from .parts import clock, section, table

WIDTH, LABELS, ROW, TOP = 960, 110, 22, 8
ROWS_MAX = 500
Document = Mapping[str, Any]


def timeline_page(frame: PageFrame, events: Document, started_ms: int) -> str:
    """Return the view; started_ms: since when events are seen."""
    found = events["events"]
    has_logs = any(each["line"] for each in found)
    headings = ("Time", "Kind", "What", *(("Log",) if has_logs else ()))
    rows = event_rows(found, ROWS_MAX, has_logs=has_logs)
    body = table("Events", headings, rows, empty="nothing has happened yet")
    about = (
        "Events come from the logs of the nodes."
        if has_logs
        else "Events are told by the difference of two looks, every few seconds."
    )
    return page(
        frame,
        "Timeline",
        section("axis", "On one axis", _axis(found, started_ms, frame.now_ms), about=about),
        section("events", "The newest first", body),
    )


def _axis(events: Sequence[Document], start_ms: int, end_ms: int) -> Html:
    if not events:
        return element("p", "Nothing to draw yet.", class_="empty")
    first = min(start_ms, events[-1]["at_ms"])
    span = max(1, end_ms - first)
    kinds = sorted({each["kind"] for each in events})
    drawn: list[Html] = []
    for at, kind in enumerate(kinds):
        y = TOP + at * ROW + ROW / 2
        drawn.append(element("text", kind, x=0, y=y + 4, class_="label"))
        drawn.append(element("line", x1=LABELS, x2=WIDTH, y1=y, y2=y, class_="base"))
    for each in events:
        x = LABELS + 6 + (each["at_ms"] - first) / span * (WIDTH - LABELS - 12)
        y = TOP + kinds.index(each["kind"]) * ROW + ROW / 2
        title = element("title", each["sentence"])
        drawn.append(element("circle", title, cx=f"{x:.1f}", cy=y, r=4, class_="event"))
    height = TOP + len(kinds) * ROW + 4
    picture = element(
        "svg",
        element("title", f"{len(events)} events of {len(kinds)} kinds; each is in the table below"),
        drawn,
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        class_="timeline",
    )
    ends = element("p", clock(first), " to ", clock(end_ms), class_="ends")
    inner = element(
        "div", picture, class_="wide", tabindex="0", role="region", aria_label="Events on one axis"
    )
    return element("div", inner, ends)
