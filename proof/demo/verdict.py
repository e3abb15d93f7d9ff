"""The common part of all jobs' reports, with verdict, exit code and findings."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ...deploy.cluster.terminal import tell
from ..judge.analysis.findings import Anomaly, Finding
from ..pages.run_report import FaultSpan, RunReport, RunTable

EXAMPLES_MAX = 5
STATE = {0: "ok", 1: "bad"}


class Judged(Protocol):
    """The result of a run of any job, with its findings.

    `is_proof` shows whether faults hit work in flight.
    """

    seed: int
    broken: str
    seconds: float

    @property
    def is_proof(self) -> bool: ...

    @property
    def findings(self) -> Sequence[Finding]: ...


def exit_code(report: Judged) -> int:
    """Return 0 for exactly once, 1 for a violation, and 3 if the run proves nothing."""
    return 1 if report.findings else 0 if report.is_proof else 3


def sentence(report: Judged, *, without: str, no_proof: str, right: str) -> str:
    """Return the verdict of a run as a sentence.

    without: the part that `--break` removed, and its effect. no_proof: why the run proves nothing.
    right: the result of a run without findings.
    """
    took = f"seed {report.seed}, {report.seconds:.0f} s"
    if report.findings:
        named = ", ".join(f"{f.count:,} {f.name}" for f in report.findings)
        why = f" Without {without}" if report.broken != "none" else ""
        return f"VIOLATED: {named} ({took}).{why}"
    if not report.is_proof:
        return f"NOT A PROOF: {no_proof} ({took}). Run it again."
    if report.broken != "none":
        return f"Nothing was lost or doubled this time, by luck ({took})."
    return f"EXACTLY ONCE: {right} ({took})."


def verdict_json(report: Judged) -> dict[str, Any]:
    return {
        "seed": report.seed,
        "break": report.broken,
        "verdict": "violated" if report.findings else "ok" if report.is_proof else "no proof",
        "violations": [
            {
                "kind": f.name,
                "count": f.count,
                "examples": [case.sentence for case in f.cases[:EXAMPLES_MAX]],
            }
            for f in report.findings
        ],
        "seconds": round(report.seconds, 1),
    }


def print_findings(findings: Iterable[Finding]) -> None:
    for finding in findings:
        tell(f"  {finding.name}: {finding.count:,}, for instance {finding.cases[0].sentence}")


def print_number(number: int, what: str) -> None:
    tell(f"{number:>9,}  {what}")


def print_counts(anomalies: Iterable[Anomaly], findings: Iterable[Finding]) -> None:
    counts = {finding.name: finding.count for finding in findings}
    tell(" " * 11 + ", ".join(f"{counts.get(each.name, 0):,} {each.name}" for each in anomalies))


def demo_run_report(
    report: Judged,
    sentence: str,
    fields: Mapping[str, Any],
    when: Sequence[tuple[float, float]],
) -> RunReport:
    """Return the report of a run, as data of `oncelog ui`.

    fields: the run as JSON. when: begin and end of each fault.
    """
    faults: list[Mapping[str, Any]] = fields["faults"]
    return RunReport(
        command="oncelog demo",
        state=STATE.get(exit_code(report), "note"),
        verdict=sentence,
        facts=[
            (name.replace("_", " "), value)
            for name, value in fields.items()
            if isinstance(value, (int, float, str))
        ],
        words=[
            f"{found.name}: {found.count:,}, for instance {case.sentence}"
            for found in report.findings
            for case in found.cases[:EXAMPLES_MAX]
        ],
        seconds=report.seconds,
        spans=[
            FaultSpan(fault["kind"], *times, fault["told"])
            for fault, times in zip(faults, when, strict=True)
        ],
        tables=[
            RunTable(name.capitalize(), ("What", "How many"), list(counts.items()))
            for name, counts in fields.items()
            if isinstance(counts, Mapping)
        ],
    )
