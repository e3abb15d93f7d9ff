"""Curves of a cluster over time, as SVG in the HTML of a page, without I/O.

Text beside each curve has its newest and its largest value, for readers without pictures.
"""

from collections.abc import Sequence
from itertools import pairwise

from ...proof.pages.axis import Curve
from ...proof.pages.markup import Html, element
from ...proof.pages.parts import number
from ..facts import ClusterSample

WIDTH, HEIGHT = 240, 44
POINTS_MAX = 240


def throughput(samples: Sequence[ClusterSample]) -> list[Curve]:
    """Return the curves of written records, read bytes, and latencies of Produce and Fetch.

    Without samples of nodes on this machine, return only the growth of the end offsets.
    """
    found = [_rates("written", "offsets/s", [(s.at_ms, s.end_offsets) for s in samples])]
    if any(s.counted_ms is not None for s in samples):
        told = {s.counted_ms: s for s in samples if s.counted_ms is not None}
        found = [
            _rates("written", "records/s", [(t, s.messages_in or 0) for t, s in told.items()]),
            _rates("read", "bytes/s", [(t, s.bytes_out or 0) for t, s in told.items()]),
            Curve("Produce, 99 % within", "ms", [(t, s.produce_ms or 0) for t, s in told.items()]),
            Curve("Fetch, 50 % within", "ms", [(t, s.fetch_ms or 0) for t, s in told.items()]),
        ]
    return found


def all_curves(samples: Sequence[ClusterSample]) -> list[Curve]:
    """Return the curves of `throughput`, of blocked offsets, of open transactions and of lags."""
    return [
        *throughput(samples),
        Curve("held back from readers", "offsets", [(s.at_ms, s.held_back) for s in samples]),
        Curve("open transactions", "", [(s.at_ms, s.open_transactions) for s in samples]),
        Curve(
            "lag of all groups", "offsets", [(s.at_ms, s.lag) for s in samples if s.lag is not None]
        ),
    ]


def figure(curve: Curve) -> Html:
    """Return a curve as HTML, with its newest and its largest value as text."""
    shown = Curve(curve.name, curve.unit, curve.points[-POINTS_MAX:])
    last = shown.points[-1][1] if shown.points else None
    caption = element(
        "figcaption",
        element("span", shown.name, class_="name"),
        element("span", f"{number(last)} {shown.unit}", class_="value"),
        element("span", f"at most {number(shown.highest)}", class_="most"),
    )
    start, end = (shown.points[0][0], shown.points[-1][0]) if shown.points else (0, 1)
    drawn = element(
        "svg",
        element("title", f"{shown.name} over the last {(end - start) / 1000:.0f} s"),
        element("line", x1=0, y1=HEIGHT - 1, x2=WIDTH, y2=HEIGHT - 1, class_="base"),
        shown.line(start, end, (0, 4, WIDTH, HEIGHT - 6)),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
    )
    return element("figure", caption, drawn, class_="curve")


def _rates(name: str, unit: str, counts: Sequence[tuple[int, float]]) -> Curve:
    """Return the curve of a counter's increase per second.

    The rate is 0 where the counter falls, because a broker has restarted.
    """
    points = [
        (new_ms, round(max(0, new - old) * 1000 / (new_ms - old_ms), 1))
        for (old_ms, old), (new_ms, new) in pairwise(counts)
        if new_ms > old_ms
    ]
    return Curve(name, unit, points)
