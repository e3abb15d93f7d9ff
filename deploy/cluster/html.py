"""Our HTML pages, which need nothing from anywhere: text is escaped here, `parts` are HTML."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import zip_longest
from typing import Any

from .terminal import cell

COLOURS = ("#0b6e99", "#d9730d", "#448361", "#9065b0", "#c14c8a", "#787774", "#337ea9", "#cb912f")
STYLE = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;"
    "color:#222}table{border-collapse:collapse}td,th{padding:.2rem .7rem;text-align:left;"
    "border-bottom:1px solid #ddd}.n{text-align:right}.wide{overflow-x:auto}"
    "svg{max-width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:#222}"
    "code{background:#f4f4f4;padding:.1rem .3rem}h2{margin-top:2rem}"
)


def page(title: str, heading: str, *parts: str) -> str:
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
        f"<h1>{escape(heading)}</h1>{''.join(parts)}</html>"
    )


def section(title: str, part: str) -> str:
    return f"<h2>{escape(title)}</h2>{part}"


def bullets(parts: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{part}</li>' for part in parts)}</ul>"


def facts(values: Mapping[str, Any]) -> str:
    return bullets(escape(f"{key}: {_words(value)}") for key, value in values.items())


def _words(value: Any) -> str:
    """A value without Python's signs."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(each)}" for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return " ".join(map(_words, value))
    return cell(value)


def table(headings: Iterable[str], rows: Iterable[Sequence[Any]]) -> str:
    """With the cells of the terminal's tables; numbers stand to the right."""
    rows = list(rows)
    sides = [_side(column) for column in zip(*rows, strict=True)]
    head = _cells("th", headings, sides)
    body = "".join(_cells("td", map(cell, row), sides) for row in rows)
    return f'<div class="wide"><table>{head}{body}</table></div>'


def _side(column: Iterable[Any]) -> str:
    known = [value for value in column if value is not None]
    return ' class="n"' if all(isinstance(value, (int, float)) for value in known) else ""


def _cells(tag: str, texts: Iterable[str], sides: Sequence[str]) -> str:
    found = zip_longest(texts, sides, fillvalue="")
    return f"<tr>{''.join(f'<{tag}{side}>{escape(text)}</{tag}>' for text, side in found)}</tr>"


def rows_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Of rows with the same keys, which are the headings."""
    return table(rows[0], [list(row.values()) for row in rows])


def svg(width: float, height: float, drawn: Iterable[str]) -> str:
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg role="img" {size}>{"".join(drawn)}</svg>'


def text(x: float, y: float, words: str, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{escape(words)}</text>'


def curve(points: Iterable[tuple[float, float]], colour: str) -> str:
    """A line through points."""
    listed = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{listed}" fill="none" stroke="{colour}" stroke-width="2"/>'


def bar(
    x: float, y: float, width: float, height: float, colour: str, more: str = "", title: str = ""
) -> str:
    """A filled rectangle; `more`: further attributes. title: shown under the pointer."""
    size = f'width="{width:.1f}" height="{height:.1f}"'
    inner = f"<title>{escape(title)}</title>" if title else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{colour}" {more}>{inner}</rect>'
