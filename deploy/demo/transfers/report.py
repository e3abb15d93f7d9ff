"""How `--job transfers` is shown: the numbers, the verdict."""

from typing import Any

from ...judge.contents import END_ANOMALIES
from ..report import EXAMPLES_MAX, print_counts, print_number
from .judge import TRANSFER_ANOMALIES
from .run import TOPIC, TransfersReport, describe

WHAT_IS_BROKEN = {
    "decision-before-prepare": "the database commits before the records are acknowledged",
    "complete-before-commit": "Kafka's transaction is committed before the database's",
    "no-nonce": "all sessions of a service have one transactional id",
    "two-owners": "the generation is not looked at when a transaction is decided",
    "no-tombstone": "the check-back aborts without writing that into the table of decisions",
}
WITHOUT = {
    "decision-before-prepare": "a prepared transaction a row may have no event.",
    "complete-before-commit": "the database's decision first an event may have no row.",
    "no-nonce": "ids of their own a request that comes late aborts what was decided.",
    "two-owners": "the generation a process that wakes commits what its successor has aborted.",
    "no-tombstone": "the row of the check-back a service that wakes commits what was aborted.",
}


def print_verdict(report: TransfersReport) -> None:
    """The end of the story, on stdout."""
    verdict, told = report.verdict, report.told
    print()
    words = {"committed": "returned", "failed": "raised, and count for nothing"}
    ended = ", ".join(f"{told[w]:,} {text}" for w, text in words.items())
    unsaid = sum(n for word, n in told.items() if word not in words)
    print_number(told.total(), f"transfers begun: {ended}, {unsaid:,} cut off")
    print_number(verdict.rows, f"rows of transfers in {report.database}")
    print_number(verdict.read, f"records in {TOPIC}, {verdict.distinct:,} distinct")
    print_counts(TRANSFER_ANOMALIES, verdict.violations)
    print_counts(END_ANOMALIES[:2], report.at_the_end)
    hit = sum(fault.open_transactions for fault in report.faults)
    print(
        f"{len(report.faults)} faults hit {hit} open transactions; readers waited for "
        f"{verdict.longest_wait_s:.1f} s at most, without the time in which something was away"
    )
    for finding in report.findings:
        print(f"  {finding.name}: {finding.count:,}, for instance {finding.cases[0].sentence}")
    print()
    print(sentence(report))


def sentence(report: TransfersReport) -> str:
    took = f"seed {report.seed}, {report.seconds:.0f} s"
    if report.findings:
        named = ", ".join(f"{f.count:,} {f.name}" for f in report.findings)
        why = f" Without {WITHOUT[report.broken]}" if report.broken != "none" else ""
        return f"VIOLATED: {named} ({took}).{why}"
    if not report.is_proof:
        return f"NOT A PROOF: no fault hit a transaction that was open ({took}). Run it again."
    if report.broken != "none":
        return f"Nothing was lost or doubled this time, by luck ({took})."
    return f"EXACTLY ONCE: each row has its event, and each event its row ({took})."


def as_json(report: TransfersReport) -> dict[str, Any]:
    verdict = report.verdict
    return {
        "seed": report.seed,
        "break": report.broken,
        "database": report.database,
        "verdict": "violated" if report.findings else "ok" if report.is_proof else "no proof",
        "rows": verdict.rows,
        "read": verdict.read,
        "distinct": verdict.distinct,
        "told": dict(report.told),
        "longest_wait_s": round(verdict.longest_wait_s, 2),
        "restarts": report.restarts,
        "violations": [
            {
                "kind": f.name,
                "count": f.count,
                "examples": [case.sentence for case in f.cases[:EXAMPLES_MAX]],
            }
            for f in report.findings
        ],
        "seconds": round(report.seconds, 1),
        "faults": [
            {
                "kind": f.kind,
                "what": f.what,
                "open_transactions": f.open_transactions,
                "resumed_ms": round(f.resumed_ms, 1),
                "told": describe(f),
            }
            for f in report.faults
        ],
    }
