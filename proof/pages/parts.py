"""The common parts of several views without I/O, such as numbers, ages and tables."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from .markup import NOTHING, Child, Html, element, joined

GLYPHS = {
    "serves": "●", "running": "●", "Stable": "●", "ok": "●", "in sync": "●", "Empty": "○",
    "Ongoing": "◐", "PrepareCommit": "◑", "PrepareAbort": "◑", "PrepareEpochFence": "◑",
    "CompleteCommit": "✓", "CompleteAbort": "✕", "note": "▲", "bad": "■", "paused": "❚❚",
    "down": "■", "fenced": "▲", "out of sync": "▲",
    "kept": "●", "broken": "■", "nothing is proved": "▲",
}  # fmt: skip
GOOD = ("serves", "running", "Stable", "ok", "in sync", "CompleteCommit", "kept")
BAD = ("bad", "down", "paused", "fenced", "Dead", "broken")
CALM = ("Empty", "CompleteAbort")
YEAR_9999_MS = 253_370_764_800_000


def number(value: float | None) -> str:
    """Return a number as text with thousands separators, or a dash for None."""
    if value is None:
        return "-"
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.1f}"
    return f"{round(value):,}"


def duration(ms: float | None) -> str:
    """Return a duration as text, in at most two units."""
    if ms is None:
        return "-"
    seconds = abs(ms) / 1000
    sign = "-" if ms < 0 else ""
    if seconds < 10:
        return f"{sign}{seconds:.1f} s"
    if seconds < 120:
        return f"{sign}{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{sign}{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours} h {minutes:02d} min"


def size(value: int | None) -> str:
    """Return a number of bytes as text in a suitable unit."""
    if value is None:
        return "-"
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def clock(at_ms: float, *, with_date: bool = False) -> Html:
    """Return a time of day, with the date in machine-readable form.

    An impossible time becomes a dash, because producers may choose any timestamp.
    """
    if not 0 <= at_ms < YEAR_9999_MS:
        return element("span", "-")
    at = datetime.fromtimestamp(at_ms / 1000)
    words = f"{at:%Y-%m-%d %H:%M}" if with_date else f"{at:%H:%M:%S}"
    return element("time", words, datetime=f"{at:%Y-%m-%dT%H:%M:%S}")


def as_of(words: str, as_of_ms: int) -> Html:
    """Return a sentence with the time of data that is older than the rest of the page."""
    return element("p", words, " as of ", clock(as_of_ms), ".", class_="about")


def state(name: str) -> Html:
    """Return a state as a symbol and its name, so that the colour adds no information."""
    kind = "good" if name in GOOD else "bad" if name in BAD else "calm" if name in CALM else "busy"
    glyph = element("span", GLYPHS.get(name, "◆"), aria_hidden="true")
    return element("span", glyph, " ", name, class_=f"state {kind}")


def link(address: str, *words: Child) -> Html:
    """Return a link to another view."""
    return element("a", *words, href=address)


def section(name: str, title: Child, *children: Child, about: str = "") -> Html:
    """Return a section of a view.

    The page replaces the whole section in the browser when its text has changed.
    """
    heading = element("h2", title, id=f"{name}-title")
    words = element("p", about, class_="about") if about else NOTHING
    return element(
        "section",
        heading,
        words,
        *children,
        id=name,
        data_live=True,
        aria_labelledby=f"{name}-title",
    )


def table(
    caption: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[Child]],
    *,
    numbers: Sequence[int] = (),
    empty: str = "none",
) -> Html:
    """Return a table that scrolls by itself if it is too wide.

    numbers: right-aligned columns. empty: the text in place of a table without rows.
    """
    if not rows:
        return element("p", empty, class_="empty")
    head = [
        element("th", words, scope="col", class_="n" if at in numbers else None)
        for at, words in enumerate(headings)
    ]
    body = [
        element(
            "tr",
            element(
                "th",
                row[0],
                scope="row",
                role="rowheader",
                class_="n" if 0 in numbers else None,
            ),
            [
                element(
                    "td",
                    value,
                    class_="n" if at in numbers else None,
                    data_label=headings[at],
                    role="cell",
                )
                for at, value in enumerate(row[1:], 1)
            ],
            role="row",
        )
        for row in rows
    ]
    inner = element(
        "table",
        element("caption", caption, class_="unseen"),
        element("thead", element("tr", head)),
        element("tbody", body, role="rowgroup"),
        role="table",  # also where a narrow screen shows rows as blocks
    )
    return element("div", inner, class_="wide", tabindex="0", role="region", aria_label=caption)


def more(count: int, address: str) -> Html:
    """Return a line with the number of omitted rows and the address of the complete document."""
    return element("p", f"and {count} more: see {address}") if count > 0 else NOTHING


def facts(pairs: Sequence[tuple[str, Child]]) -> Html:
    """Return pairs of a name and a value in one row."""
    items = [element("div", element("dt", name), element("dd", value)) for name, value in pairs]
    return element("dl", items, class_="facts")


def explanation(words: Mapping[str, Any]) -> Html:
    """Return the text of `oncelog why` or `oncelog txn explain` as HTML. Commands can be copied."""
    lines = [
        element("div", element("dt", line["about"]), element("dd", _sentence(line["sentence"])))
        for line in words["lines"]
    ]
    return joined(
        element("p", words["heading"], class_="heading"),
        element("dl", lines, class_="why") if lines else NOTHING,
    )


def _sentence(text: str) -> Child:
    return element("code", text) if text.startswith("oncelog ") else text


def advice(text: str) -> Child:
    """Return advice about the next step as HTML. A command becomes code, and a sentence text."""
    return _sentence(text) if text else "-"
