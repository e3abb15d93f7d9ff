"""Verdicts in words and as JSON. The file does no I/O."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from .analysis.findings import Finding
from .catalogue import ANOMALIES
from .logs.topic_audit import TopicAudit
from .verdict import Verdict

FACTS_CHARACTERS_MAX = 2_000
SHOWN_CASES = 3


def verdict_words(verdict: Verdict, *, evidence: bool) -> Iterator[str]:
    yield f"{verdict.operations:,} operations judged by {', '.join(verdict.judged)}"
    for name, why in verdict.not_judged:
        yield f"not judged: {name}, {why}"
    yield from findings_words(verdict.findings, evidence=evidence)
    broken = len(verdict.violations)
    yield "no promise was broken" if verdict.is_clean else f"{broken} kinds of violations"


def audit_words(audit: TopicAudit, *, evidence: bool) -> Iterator[str]:
    for p in audit.partitions:
        ends = p.transactions
        yield (
            f"{p.name}: {p.batches:,} batches, {p.records:,} records, transactions "
            f"{ends['committed']:,} committed, {ends['aborted']:,} aborted, "
            f"{len(p.open_transactions())} open"
        )
        for one in p.open_transactions():
            yield (
                f"  open since offset {one.first_offset}: producer {one.producer_id} "
                f"epoch {one.producer_epoch}, first written at {one.since_ms} ms"
            )
    yield from findings_words(audit.findings, evidence=evidence)
    yield "no promise was broken" if audit.is_clean else "the log breaks promises"


def findings_words(findings: Iterable[Finding], *, evidence: bool) -> Iterator[str]:
    """Yield lines of text for each finding with its first cases, violations first."""
    for one in sorted(findings, key=lambda f: (not f.is_violation, f.anomaly.check)):
        word = "VIOLATION" if one.is_violation else "legal"
        yield f"{word} {one.anomaly.check} {one.name}: {one.count:,} ({one.anomaly.what})"
        if one.is_violation:
            for case in one.cases[:SHOWN_CASES]:
                yield f"  {case.sentence}"
                if evidence:
                    yield f"    {json.dumps(case.facts, default=str)[:FACTS_CHARACTERS_MAX]}"


def verdict_fields(verdict: Verdict) -> dict[str, Any]:
    """Return a run's verdict as JSON values."""
    return {
        "is_clean": verdict.is_clean,
        "operations": verdict.operations,
        "judged": list(verdict.judged),
        "not_judged": dict(verdict.not_judged),
        "findings": [finding_fields(one) for one in verdict.findings],
    }


def audit_fields(audit: TopicAudit) -> dict[str, Any]:
    """Return the result of a topic's audit as JSON values."""
    return {
        "is_clean": audit.is_clean,
        "topic": audit.topic,
        "seconds": round(audit.seconds, 3),
        "partitions": [
            {
                "partition": p.name,
                "batches": p.batches,
                "records": p.records,
                **p.transactions,
                "open": [one._asdict() for one in p.open_transactions()],
            }
            for p in audit.partitions
        ],
        "findings": [finding_fields(one) for one in audit.findings],
    }


def finding_fields(one: Finding) -> dict[str, Any]:
    """Return a finding as JSON values, with all its stored cases."""
    return {
        "name": one.name,
        "check": one.anomaly.check,
        "is_violation": one.is_violation,
        "what": one.anomaly.what,
        "count": one.count,
        "cases": [{"sentence": c.sentence, "facts": dict(c.facts)} for c in one.cases],
    }


def catalogue_rows() -> list[dict[str, str]]:
    """Return one row for each anomaly, for a table.

    The kind of an anomaly is a violation, or legal and only information.
    """
    return [
        {
            "check": anomaly.check,
            "anomaly": anomaly.name,
            "what": anomaly.what,
            "kind": "legal" if anomaly.is_legal else "violation",
        }
        for anomaly in ANOMALIES.values()
    ]
