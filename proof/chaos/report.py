"""Creates the report of a run, with curves, faults on the timeline, tables, and the verdict."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...deploy.cluster.failure import Failure
from ...deploy.faults.schedule import KINDS_BY_TARGET
from ..judge.history.columns import History
from ..judge.history.format import HistoryFormat
from ..judge.report import verdict_words
from ..judge.verdict import Verdict, judge
from ..pages.run_folder import keep_report
from ..pages.run_report import FaultSpan, RunCurve, RunReport, RunTable
from .series import FaultBar, Line, Series, series_of

OTHER = "other"


def write_report(run: Path, page: Path | None = None, verdict: Verdict | None = None) -> Path:
    """Write report.json and the page of a run, and return the page's path.

    The page is written to `page`, or else into the run's directory. Without `verdict` the run is
    judged first.
    """
    try:
        about = json.loads((run / "run.json").read_text(encoding="utf-8"))
        history = History.open(run)
    except (OSError, ValueError, HistoryFormat) as problem:
        raise Failure(f"{run} is not the directory of a run ({problem}).") from None
    found = verdict or judge(history)
    return keep_report(report_of(about, series_of(history), found), run, page)


def report_of(about: Mapping[str, Any], series: Series, verdict: Verdict) -> RunReport:
    """Return the report of a run. `about` is the contents of run.json."""
    outcome = about.get("outcome") or {}
    *lines, last = verdict_words(verdict, evidence=True)
    faults = sorted(series.faults, key=lambda bar: bar.start_s)
    settings = {"again": about.get("replay"), **about.get("versions", {})}
    return RunReport(
        command="oncelog chaos run",
        state=_state(outcome, verdict),
        verdict=last,
        facts=[
            ("seed", str(about.get("seed"))),
            ("nodes", about.get("settings", {}).get("nodes")),
            ("seconds", round(series.seconds)),
            ("faults", len(faults)),
            ("operations", verdict.operations),
        ],
        words=[line for line in (*outcome.get("broken", ()), outcome.get("bank"), *lines) if line],
        seconds=series.seconds,
        curves=[_curve(line, series) for line in (*series.rates, *series.latencies)],
        spans=[
            FaultSpan(target_of(f.kind), f.start_s, f.end_s, f"{f.kind}: {f.target}")
            for f in faults
        ],
        tables=[
            fault_table(faults),
            RunTable(
                "Errors that clients met",
                ("Error", "Times"),
                list(outcome.get("client_errors", {}).items()),
            ),
            RunTable("Settings", ("What", "Value"), [(k, str(v)) for k, v in settings.items()]),
        ],
    )


def _state(outcome: Mapping[str, Any], verdict: Verdict) -> str:
    is_balanced = outcome.get("is_balanced", True)
    if not verdict.is_clean or outcome.get("broken") or not is_balanced:
        return "bad"
    return "ok" if sum(outcome.get("faults", {}).values()) * 2 > outcome.get("tried", 0) else "note"


def _curve(line: Line, series: Series) -> RunCurve:
    name, _, unit = line.name.partition(", ")
    points = [
        ((i + 0.5) * series.bin_s, round(v, 3))
        for i, v in enumerate(line.values.tolist())
        if np.isfinite(v)
    ]
    return RunCurve(name, unit, points)


def target_of(kind: str) -> str:
    """Return the part of the system that faults of this kind hit, such as nodes or clients."""
    return next((target for target, kinds in KINDS_BY_TARGET.items() if kind in kinds), OTHER)


def fault_table(faults: Sequence[FaultBar]) -> RunTable:
    """Return a table with the count and mean duration of each kind of fault."""
    kinds: dict[str, list[float]] = {}
    for bar in faults:
        kinds.setdefault(bar.kind, []).append(bar.end_s - bar.start_s)
    rows = [
        (kind, target_of(kind), len(each), round(sum(each) / len(each), 2))
        for kind, each in sorted(kinds.items())
    ]
    return RunTable("Faults by kind", ("Kind", "Target", "Times", "Seconds, mean"), rows)
