"""Small curves over the last minutes, drawn where the page is made; pure.

The numbers stand beside the curve as text, so that it can be read without seeing it.
"""

from collections.abc import Sequence

from .markup import Html, element
from .parts import number

WIDTH, HEIGHT = 240, 44
POINTS_MAX = 240


def curve(name: str, times_ms: Sequence[int], values: Sequence[float | None], unit: str) -> Html:
    """A curve with its newest and its largest value in words."""
    known = [(t, v) for t, v in zip(times_ms, values, strict=True) if v is not None]
    known = known[-POINTS_MAX:]
    last = known[-1][1] if known else None
    highest = max((v for _, v in known), default=0.0)
    caption = element(
        "figcaption",
        element("span", name, class_="name"),
        element("span", f"{number(last)} {unit}", class_="value"),
        element("span", f"at most {number(highest)}", class_="most"),
    )
    return element("figure", caption, _drawn(name, known, highest), class_="curve")


def _drawn(name: str, known: Sequence[tuple[int, float]], highest: float) -> Html:
    start, end = (known[0][0], known[-1][0]) if known else (0, 1)
    span, top = max(1, end - start), max(highest, 1e-9)
    points = " ".join(
        f"{(t - start) / span * WIDTH:.1f},{HEIGHT - 2 - v / top * (HEIGHT - 6):.1f}"
        for t, v in known
    )
    seconds = (end - start) / 1000
    return element(
        "svg",
        element("title", f"{name} over the last {seconds:.0f} s"),
        element("line", x1=0, y1=HEIGHT - 1, x2=WIDTH, y2=HEIGHT - 1, class_="base"),
        element("polyline", points=points, class_="line"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
    )
