"""The benchmark as one page that needs nothing from anywhere: tables and inline SVG."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from ...deploy.cluster import html
from ...deploy.cluster.html import COLOURS
from .floor import Floor
from .load import perf_line
from .replication import Repetition, ReplicationResult
from .report import rows

BAR_HEIGHT, LABEL_WIDTH, PLOT_WIDTH = 22, 360, 480
CURVE_WIDTH, CURVE_HEIGHT, MARGIN = 640, 320, 44


Value = Callable[[Repetition], float | None]
PLOTS: dict[str, Value] = {
    "Throughput, MB/s": lambda r: r.throughput.mb_per_s,
    "Latency p99, ms, at a rate": lambda r: r.latency.percentiles_ms[99.0],
    "CPU seconds of all nodes for each GB": lambda r: r.cpu_s_per_gb,
    "MB sent between nodes for each MB acknowledged": lambda r: r.link_bytes_per_acknowledged_byte,
}


def page(
    environment: dict[str, Any],
    results: Sequence[ReplicationResult],
    floors: Mapping[int, Floor] | None = None,
) -> str:
    lines = [
        f"<code>{escape(perf_line(r.middle.throughput))}</code> {escape(r.cell.name)}"
        for r in results
    ]
    return html.page(
        "oncelog bench replication",
        "What a replica costs",
        html.facts(environment),
        html.rows_table(rows(results, floors)),
        *[html.section(title, bars(results, value)) for title, value in PLOTS.items()],
        html.section("Latency by percentile (corrected for coordinated omission)", curves(results)),
        html.section("In the words of kafka-producer-perf-test", html.bullets(lines)),
    )


def bars(results: Sequence[ReplicationResult], value: Value) -> str:
    """A bar for each cell, the median; a word when nothing is known."""
    known = [(r, v) for r in results if (v := r.median(value)) is not None]
    if not known:
        return "<p>Not known for this cluster.</p>"
    highest = max(v for _, v in known) or 1.0
    drawn: list[str] = []
    for i, (result, v) in enumerate(known):
        y, width = i * BAR_HEIGHT, PLOT_WIDTH * v / highest
        drawn += (
            html.text(LABEL_WIDTH - 8, y + 15, result.cell.name, 'text-anchor="end"'),
            html.bar(LABEL_WIDTH, y + 3, width, BAR_HEIGHT - 6, COLOURS[0]),
            html.text(LABEL_WIDTH + width + 6, y + 15, f"{v:,.2f}"),
        )
    return html.svg(LABEL_WIDTH + PLOT_WIDTH + 90, len(known) * BAR_HEIGHT, drawn)


def curves(results: Sequence[ReplicationResult]) -> str:
    """Latency by percentile, the percentiles spread so that the tail can be seen."""
    lines = [(r.cell.name, r.middle.latency.curve) for r in results]
    highest = max((ms for _, curve in lines for _, ms in curve), default=0.0) or 1.0
    inner_width, inner_height = CURVE_WIDTH - 2 * MARGIN, CURVE_HEIGHT - 2 * MARGIN

    def x_of(step: int, curve: Sequence[Any]) -> float:
        return MARGIN + inner_width * step / max(1, len(curve) - 1)

    drawn = [html.text(4, MARGIN, f"{highest:,.1f} ms")]
    for i, (name, curve) in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        points = [
            (x_of(j, curve), MARGIN + inner_height * (1 - ms / highest))
            for j, (_, ms) in enumerate(curve)
        ]
        drawn.append(html.curve(points, colour))
        drawn.append(html.text(CURVE_WIDTH + 8, MARGIN + 16 * i, name, f'style="fill:{colour}"'))
    _, first = lines[0]
    drawn += [
        html.text(x_of(j, first), CURVE_HEIGHT - 18, f"{share:g}", 'text-anchor="middle"')
        for j, (share, _) in enumerate(first)
    ]
    return html.svg(CURVE_WIDTH + 380, max(CURVE_HEIGHT, MARGIN + 16 * len(lines)), drawn)
