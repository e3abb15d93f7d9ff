"""The view Timeline, with events on one axis and as a list, without I/O."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ...proof.pages.axis import AxisRow, TimeAxis
from ...proof.pages.markup import Child, Html, element, joined
from ...proof.pages.parts import clock, link, section, table
from ..facts import ClusterSample
from ..window import MINUTE_MS, MINUTES, TimeWindow
from .curves import throughput
from .frame import PageFrame, page
from .happened import event_rows

ROWS_MAX = 500
Document = Mapping[str, Any]


def timeline_page(
    frame: PageFrame,
    events: Document,
    started_ms: int,
    samples: Sequence[ClusterSample] = (),
    window: TimeWindow | None = None,
) -> str:
    """Return the view Timeline of all events, or of the time range `window`.

    `started_ms` is the time at which the page began to observe the cluster.
    """
    found = events["events"]
    has_logs = any(each["line"] for each in found)
    headings = ("Time", "Kind", "What", *(("Log",) if has_logs else ()))
    rows = event_rows(found, ROWS_MAX, has_logs=has_logs)
    nothing = "nothing has happened yet" if window is None else "nothing happened then"
    body = table("Events", headings, rows, empty=nothing)
    about = (
        "Events come from the logs of the nodes."
        if has_logs
        else "Events are found by comparing the state of the cluster every few seconds."
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
    """Return the address of the timeline with this time range."""
    middle = datetime.fromtimestamp((start_ms + minutes * MINUTE_MS / 2) / 1000)
    return f"/timeline?at={middle:%Y-%m-%dT%H:%M:%S}&minutes={minutes}"


def _where(window: TimeWindow | None, ends: tuple[int, int], now_ms: int) -> Html:
    """Return the form to choose a time range, and links to other time ranges."""
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
    return element("section", form, _steps(window, now_ms), aria_label="The shown period")


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
    rows = [
        AxisRow(kind, [(e["at_ms"], e["sentence"]) for e in events if e["kind"] == kind])
        for kind in kinds
    ]
    axis = TimeAxis(
        start_ms=start_ms,
        end_ms=end_ms,
        label=lambda at_ms: f"{datetime.fromtimestamp(at_ms / 1000):%H:%M:%S}",
        address=lambda at_ms: window_address(at_ms - MINUTE_MS / 2, 1),
    )
    title = f"{len(events)} events of {len(kinds)} kinds; the newest are in the table below"
    inner = axis.picture(title, curves, rows)
    return element(
        "div", inner, element("p", clock(start_ms), " to ", clock(end_ms), class_="ends")
    )
