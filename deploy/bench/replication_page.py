"""The benchmark as one page that needs nothing from anywhere: tables and inline SVG."""

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from ..cluster.html import COLOURS, STYLE
from .replication import CellResult
from .report import COLUMNS, rows

BAR_HEIGHT, LABEL_WIDTH, PLOT_WIDTH = 22, 360, 480
CURVE_WIDTH, CURVE_HEIGHT, MARGIN = 640, 320, 44


def page(environment: dict[str, Any], results: Sequence[CellResult]) -> str:
    where = "".join(f"<li>{escape(k)}: {escape(str(v))}</li>" for k, v in environment.items())
    plots = [
        ("Throughput, MB/s", lambda r: r.median(lambda x: x.throughput.mb_per_s)),
        (
            "Latency p99, ms, at a rate",
            lambda r: r.median(lambda x: x.latency.percentiles_ms[99.0]),
        ),
        ("CPU seconds of all nodes for each GB", lambda r: r.median(lambda x: x.cpu_s_per_gb)),
        (
            "MB sent between nodes for each MB acknowledged",
            lambda r: r.median(lambda x: x.link_bytes_per_acknowledged_byte),
        ),
    ]
    parts = [f"<h2>{escape(title)}</h2>{bars(results, value)}" for title, value in plots]
    lines = "".join(
        f"<li><code>{escape(r.perf_line)}</code> {escape(r.cell.name)}</li>" for r in results
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>oncelog bench replication</title><style>{STYLE}</style>"
        "<h1>What a replica costs</h1>"
        f"<ul>{where}</ul>{table(results)}{''.join(parts)}"
        f"<h2>Latency by percentile (corrected for coordinated omission)</h2>{curves(results)}"
        f"<h2>In the words of kafka-producer-perf-test</h2><ul>{lines}</ul></html>"
    )


def table(results: Sequence[CellResult]) -> str:
    """The same table as in the terminal."""
    head = "".join(f"<th>{escape(title)}</th>" for title in COLUMNS.values())
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(row[key])}</td>" for key in COLUMNS) + "</tr>"
        for row in rows(list(results))
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def bars(results: Sequence[CellResult], value: Callable[[CellResult], float | None]) -> str:
    """A bar for each cell; a word when nothing is known."""
    known = [(r, v) for r in results if (v := value(r)) is not None]
    if not known:
        return "<p>Not known for this cluster.</p>"
    highest = max(v for _, v in known) or 1.0
    drawn: list[str] = []
    for i, (result, v) in enumerate(known):
        y, width = i * BAR_HEIGHT, PLOT_WIDTH * v / highest
        drawn.append(
            f'<text x="{LABEL_WIDTH - 8}" y="{y + 15}" text-anchor="end">'
            f"{escape(result.cell.name)}</text>"
            f'<rect x="{LABEL_WIDTH}" y="{y + 3}" width="{width:.1f}" height="{BAR_HEIGHT - 6}" '
            f'fill="{COLOURS[0]}"/><text x="{LABEL_WIDTH + width + 6:.1f}" y="{y + 15}">'
            f"{v:,.2f}</text>"
        )
    size = f'width="{LABEL_WIDTH + PLOT_WIDTH + 90}" height="{len(known) * BAR_HEIGHT}"'
    return f'<svg role="img" {size}>{"".join(drawn)}</svg>'


def curves(results: Sequence[CellResult]) -> str:
    """Latency by percentile, the percentiles spread so that the tail can be seen."""
    lines = [(r.cell.name, r.best.latency.curve) for r in results if r.repetitions]
    highest = max((ms for _, curve in lines for _, ms in curve), default=0.0) or 1.0
    drawn: list[str] = []
    inner_width, inner_height = CURVE_WIDTH - 2 * MARGIN, CURVE_HEIGHT - 2 * MARGIN
    for i, (name, curve) in enumerate(lines):
        steps = max(1, len(curve) - 1)
        points = " ".join(
            f"{MARGIN + inner_width * j / steps:.1f},"
            f"{MARGIN + inner_height * (1 - ms / highest):.1f}"
            for j, (_, ms) in enumerate(curve)
        )
        colour = COLOURS[i % len(COLOURS)]
        drawn.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        drawn.append(
            f'<text x="{CURVE_WIDTH + 8}" y="{MARGIN + 16 * i}" style="fill:{colour}">'
            f"{escape(name)}</text>"
        )
    if lines:
        curve = lines[0][1]
        for j, (percentile, _) in enumerate(curve):
            x = MARGIN + inner_width * j / max(1, len(curve) - 1)
            at = f'x="{x:.1f}" y="{CURVE_HEIGHT - 18}" text-anchor="middle"'
            drawn.append(f"<text {at}>{percentile:g}</text>")
    drawn.append(f'<text x="4" y="{MARGIN}">{highest:,.1f} ms</text>')
    height = max(CURVE_HEIGHT, MARGIN + 16 * len(lines))
    return f'<svg role="img" width="{CURVE_WIDTH + 380}" height="{height}">{"".join(drawn)}</svg>'


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if isinstance(value, float) else escape(str(value))
