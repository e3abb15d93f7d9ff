"""A run as one page that needs nothing else: curves, faults as bars, tables, the verdict."""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ...deploy.cluster import html
from ...deploy.cluster.failure import Failure
from ...deploy.cluster.html import COLOURS
from ...deploy.faults.schedule import KINDS_BY_TARGET
from ..judge.history.columns import History
from ..judge.history.format import HistoryFormat
from ..judge.report import verdict_words
from ..judge.verdict import judge
from .series import FaultBar, Line, Series, series_of

WIDTH, HEIGHT, MARGIN, ROW_HEIGHT = 1080, 220, 56, 16
OTHER = "other"
TARGET_COLOURS = {"nodes": "#c14c3a", "links": "#d9a40d", "clients": "#337ea9", OTHER: "#787774"}


def write_report(run: Path, page: Path) -> Path:
    """Judge the run once more and draw it; the page's path."""
    try:
        about = json.loads((run / "run.json").read_text(encoding="utf-8"))
        history = History.open(run)
    except (OSError, ValueError, HistoryFormat) as problem:
        raise Failure(f"{run} is not the directory of a run ({problem}).") from None
    series = series_of(history)
    lines = list(verdict_words(judge(history), evidence=True))
    page.write_text(render(about, series, lines), encoding="utf-8")
    return page


def render(about: dict[str, Any], series: Series, verdict: Sequence[str]) -> str:
    outcome = about.get("outcome") or {}
    facts = {
        "seed": about.get("seed"),
        "seconds": round(series.seconds),
        "nodes": about.get("settings", {}).get("nodes"),
        "again": about.get("replay"),
        **about.get("versions", {}),
    }
    legend = " · ".join(
        f'<span style="color:{TARGET_COLOURS[target]}">■ {target}</span>'
        for target in KINDS_BY_TARGET
    )
    said = [f"<b>{escape(line)}</b>" for line in (*verdict[-1:], *outcome.get("broken", ()))]
    said += [escape(line) for line in (*verdict[:-1], str(outcome.get("bank", ""))) if line]
    return html.page(
        f"oncelog chaos {about.get('seed')}",
        f"Chaos, seed {about.get('seed')}",
        html.facts(facts),
        html.section("Verdict", html.bullets(said)),
        html.section("Records and faults", f"<p>{legend}</p>{plot(series.rates[:-1], series)}"),
        html.section("Transactions and faults", plot(series.rates[-1:], series)),
        html.section("Latency and faults", plot(series.latencies, series)),
        html.section("Faults by kind", fault_table(series.faults)),
        html.section(
            "Errors that clients met",
            html.table(("clients met", "times"), outcome.get("client_errors", {}).items()),
        ),
        html.section("Faults in order", fault_list(series.faults)),
    )


def plot(lines: Sequence[Line], series: Series) -> str:
    """Curves over time, the faults as bars behind them and in rows below."""
    inner = WIDTH - 2 * MARGIN
    highest = max((float(np.nanmax(x.values)) for x in lines if np.isfinite(x.values).any()),
                  default=0.0) or 1.0  # fmt: skip

    def x_of(second: float) -> float:
        return MARGIN + inner * min(max(second, 0.0), series.seconds) / series.seconds

    drawn = [html.text(2, 16, f"{highest:,.0f}"), html.text(2, HEIGHT, "0")]
    rows = list(TARGET_COLOURS)
    for bar in series.faults:
        target = target_of(bar.kind)
        x, width = x_of(bar.start_s), max(1.0, x_of(bar.end_s) - x_of(bar.start_s))
        y, colour = HEIGHT + 22 + rows.index(target) * ROW_HEIGHT, TARGET_COLOURS[target]
        title = f"{bar.kind}: {bar.target} at {bar.start_s:.1f} s"
        drawn.append(html.bar(x, 8, width, HEIGHT - 8, colour, 'opacity="0.10"'))
        drawn.append(html.bar(x, y, width, ROW_HEIGHT - 4, colour, title=title))
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        points = [
            (x_of((i + 0.5) * series.bin_s), HEIGHT - (HEIGHT - 16) * v / highest)
            for i, v in enumerate(line.values.tolist())
            if np.isfinite(v)
        ]
        x = MARGIN + 8 + 220 * number
        drawn.append(html.curve(points, colour))
        drawn.append(html.text(x, HEIGHT + 96, line.name, f'style="fill:{colour}"'))
    for second in ticks(series.seconds):
        middle = 'text-anchor="middle"'
        drawn.append(html.text(x_of(second), HEIGHT + 16, f"{second} s", middle))
    return html.svg(WIDTH, HEIGHT + 104, drawn)


def ticks(seconds: float) -> range:
    """Return whole seconds at equal distances, at most eleven of them."""
    step = next(
        step * ten for ten in (10**power for power in range(9)) for step in (1, 2, 5)
        if seconds <= 10 * step * ten
    )  # fmt: skip
    return range(0, int(seconds) + 1, step)


def target_of(kind: str) -> str:
    """The target that a kind of fault belongs to."""
    return next((target for target, kinds in KINDS_BY_TARGET.items() if kind in kinds), OTHER)


def fault_table(faults: Sequence[FaultBar]) -> str:
    """How many of each kind, and how long they lasted."""
    kinds: dict[str, list[float]] = {}
    for bar in faults:
        kinds.setdefault(bar.kind, []).append(bar.end_s - bar.start_s)
    rows = [
        (kind, target_of(kind), len(each), f"{sum(each) / len(each):.2f}")
        for kind, each in sorted(kinds.items())
    ]
    return html.table(("kind", "target", "times", "seconds, mean"), rows)


def fault_list(faults: Sequence[FaultBar]) -> str:
    """All of them in the order of their beginnings."""
    rows = [
        (f"{bar.start_s:.1f}", f"{bar.end_s:.1f}", bar.kind, bar.target)
        for bar in sorted(faults, key=lambda bar: bar.start_s)
    ]
    return html.table(("from s", "to s", "kind", "target"), rows)
