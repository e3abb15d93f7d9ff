"""A run as one page that needs nothing else: curves, faults as bars, tables, the verdict."""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ..cluster.failure import Failure
from ..cluster.html import COLOURS, STYLE
from ..faults.schedule import LANES
from ..judge.history.columns import History
from ..judge.history.format import HistoryFormat
from ..judge.report import verdict_words
from ..judge.verdict import judge
from .series import FaultBar, Line, Series, series_of

WIDTH, HEIGHT, MARGIN, LANE_HEIGHT = 1080, 220, 56, 16
OTHER = "other"
LANE_COLOURS = {"nodes": "#c14c3a", "links": "#d9a40d", "clients": "#337ea9", OTHER: "#787774"}


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
    told = "".join(f"<li>{escape(k)}: {escape(str(v))}</li>" for k, v in facts.items())
    said = "".join(f"<li>{escape(line)}</li>" for line in verdict)
    broken = "".join(f"<li><b>{escape(line)}</b></li>" for line in outcome.get("broken", ()))
    errors = _table(
        ("clients met", "times"), [(k, v) for k, v in outcome.get("client_errors", {}).items()]
    )
    legend = " · ".join(
        f'<span style="color:{LANE_COLOURS[lane]}">■ {lane}</span>' for lane in LANES
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>oncelog chaos {about.get('seed')}</title><style>{STYLE}</style>"
        f"<h1>Chaos, seed {about.get('seed')}</h1><ul>{told}</ul>"
        f"<h2>Verdict</h2><ul>{said}<li>{escape(str(outcome.get('bank', '')))}</li>{broken}</ul>"
        f"<h2>Throughput and faults</h2><p>{legend}</p>{plot(series.rates, series)}"
        f"<h2>Latency and faults</h2>{plot(series.latencies, series)}"
        f"<h2>Faults by kind</h2>{fault_table(series.faults)}"
        f"<h2>Errors that clients met</h2>{errors}"
        f"<h2>Faults in order</h2>{fault_list(series.faults)}</html>"
    )


def plot(lines: Sequence[Line], series: Series) -> str:
    """Curves over time, the faults as bars behind them and in lanes below."""
    inner = WIDTH - 2 * MARGIN
    highest = max((float(np.nanmax(x.values)) for x in lines if np.isfinite(x.values).any()),
                  default=0.0) or 1.0  # fmt: skip

    def x_of(second: float) -> float:
        return MARGIN + inner * min(max(second, 0.0), series.seconds) / series.seconds

    drawn: list[str] = []
    lanes = list(LANE_COLOURS)
    for bar in series.faults:
        lane = lane_of(bar.kind)
        x, width = x_of(bar.start_s), max(1.0, x_of(bar.end_s) - x_of(bar.start_s))
        colour, title = LANE_COLOURS[lane], f"{bar.kind}: {bar.target}"
        drawn.append(
            f'<rect x="{x:.1f}" y="8" width="{width:.1f}" height="{HEIGHT - 8}" fill="{colour}" '
            f'opacity="0.10"/><rect x="{x:.1f}" width="{width:.1f}" height="{LANE_HEIGHT - 4}" '
            f'y="{HEIGHT + 22 + lanes.index(lane) * LANE_HEIGHT}" fill="{colour}">'
            f"<title>{escape(title)} at {bar.start_s:.1f} s</title></rect>"
        )
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(
            f"{x_of((i + 0.5) * series.bin_s):.1f},{HEIGHT - (HEIGHT - 16) * v / highest:.1f}"
            for i, v in enumerate(line.values.tolist())
            if np.isfinite(v)
        )
        drawn.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
            f'<text x="{MARGIN + 8 + 220 * number}" y="{HEIGHT + 96}" style="fill:{colour}">'
            f"{escape(line.name)}</text>"
        )
    for tick in range(0, 11):
        second = series.seconds * tick / 10
        drawn.append(
            f'<text x="{x_of(second):.1f}" y="{HEIGHT + 16}" text-anchor="middle">{second:.0f} s'
            "</text>"
        )
    drawn.append(f'<text x="2" y="16">{highest:,.0f}</text><text x="2" y="{HEIGHT}">0</text>')
    size = f'width="{WIDTH}" height="{HEIGHT + 104}"'
    return f'<svg role="img" {size}>{"".join(drawn)}</svg>'


def lane_of(kind: str) -> str:
    """The lane that a kind of fault belongs to."""
    return next((lane for lane, kinds in LANES.items() if kind in kinds), OTHER)


def fault_table(faults: Sequence[FaultBar]) -> str:
    """How many of each kind, and how long they lasted."""
    kinds: dict[str, list[float]] = {}
    for bar in faults:
        kinds.setdefault(bar.kind, []).append(bar.end_s - bar.start_s)
    rows = [
        (kind, lane_of(kind), len(each), f"{sum(each) / len(each):.2f}")
        for kind, each in sorted(kinds.items())
    ]
    return _table(("kind", "lane", "times", "seconds, mean"), rows)


def fault_list(faults: Sequence[FaultBar]) -> str:
    """All of them in the order of their beginnings."""
    rows = [
        (f"{bar.start_s:.1f}", f"{bar.end_s:.1f}", bar.kind, bar.target)
        for bar in sorted(faults, key=lambda bar: bar.start_s)
    ]
    return _table(("from s", "to s", "kind", "target"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    top = "".join(f"<th>{escape(each)}</th>" for each in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{top}</tr>{body}</table>"
