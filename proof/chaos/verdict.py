"""Judges a run's history, and returns the outcome in words and JSON."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...deploy.cluster.advice import shell_command
from ..judge.history.columns import History
from ..judge.history.files import seal
from ..judge.history.schema import OpOutcome
from ..judge.report import verdict_fields, verdict_words
from ..judge.verdict import Verdict, judge
from .plan_settings import RunSettings
from .reconciliations import faults_in_reconciliations
from .run import RunOutcome

SHOWN_MISSES = 8


def judge_run(run: Path) -> Verdict:
    """Seal the history of a run, check it, and return the verdict."""
    seal(run)
    return judge(History.open(run))


def counts_of(run: Path) -> dict[str, int]:
    """Return the numbers of records, transactions, reconciliations, and faults that hit these."""
    history = History.open(run)
    outcome = history.column("transactions", "outcome")
    return {
        "records_sent": history.count("sends"),
        "records_polled": history.count("polls"),
        "transactions": history.count("transactions"),
        "transactions_committed": int((outcome == OpOutcome.OK).sum()),
        "transactions_in_doubt": int((outcome == OpOutcome.INFO).sum()),
        "reconciliations": history.count("reconciliations"),
        "faults_in_reconciliations": faults_in_reconciliations(history),
    }


def words(run: Path, settings: RunSettings, outcome: RunOutcome, verdict: Verdict) -> Iterator[str]:
    counts = counts_of(run)
    yield f"{settings.nodes} nodes, seed {settings.seed}, {outcome.load_s:.0f} s of load"
    yield (
        f"{sum(outcome.faults.values())} faults of {len(outcome.faults)} kinds "
        f"({outcome.tried} tried): "
        + ", ".join(f"{kind} {count}" for kind, count in outcome.faults.items())
    )
    for miss in outcome.missed[:SHOWN_MISSES]:
        yield f"  not hit: {miss}"
    if len(outcome.missed) > SHOWN_MISSES:
        yield f"  and {len(outcome.missed) - SHOWN_MISSES} more; see {run}/run.json"
    rate = verdict.operations / outcome.load_s if outcome.load_s else 0
    yield (
        f"{counts['records_sent']:,} records sent, {counts['records_polled']:,} polled, "
        f"{counts['transactions']:,} transactions ({counts['transactions_committed']:,} committed, "
        f"{counts['transactions_in_doubt']:,} in doubt), {rate:,.0f} operations/s, "
        f"{outcome.clients:,} clients"
    )
    if settings.load.consumer_groups:
        yield (
            f"{counts['faults_in_reconciliations']} faults met a reconciliation in flight, of "
            f"{counts['reconciliations']:,} in {', '.join(settings.load.consumer_groups)} (KIP-848)"
        )
    if outcome.client_errors:
        met = ", ".join(f"{name} {count:,}" for name, count in outcome.client_errors.items())
        yield f"errors that clients got: {met}"
    yield f"at rest {outcome.rest_s} s after the healing; {outcome.batches:,} batches on the disks"
    for line in outcome.broken:
        yield f"BROKEN {line}"
    yield outcome.bank
    yield from verdict_words(verdict, evidence=False)
    if not outcome.has_hit:
        yield "at most half of the faults took effect, so this run proves little"
    yield f"all results: {run}"
    again, shown = shell_command("chaos replay", run), shell_command("ui", run)
    yield f"again: {again}   shown: {shown}"


def fields(
    run: Path, settings: RunSettings, outcome: RunOutcome, verdict: Verdict
) -> dict[str, Any]:
    return {
        "run": str(run),
        "seed": settings.seed,
        "is_clean": verdict.is_clean and outcome.is_clean,
        "has_hit": outcome.has_hit,
        "counts": counts_of(run),
        "outcome": asdict(outcome),
        "verdict": verdict_fields(verdict),
    }
