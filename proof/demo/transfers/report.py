"""The screen of `--job transfers`, with the numbers of the run and the verdict."""

from typing import Any

from ....deploy.cluster.terminal import tell
from ...judge.contents import END_ANOMALIES
from .. import verdict as demo_verdict
from ..verdict import print_counts, print_findings, print_number, verdict_json
from .judge import TRANSFER_ANOMALIES
from .run import TOPIC, TransfersReport, describe

WHAT_IS_BROKEN = {
    "decision-before-prepare": "the database commits before the records are acknowledged",
    "complete-before-commit": "Kafka's transaction is committed before the database's",
    "no-nonce": "all sessions of a service have one transactional id",
    "two-owners": "the generation is not checked when a transaction is decided",
    "no-tombstone": "the check-back aborts without a row in the decision table",
}
WITHOUT = {
    "decision-before-prepare": "a prepared transaction a row may have no event.",
    "complete-before-commit": "the database's decision first an event may have no row.",
    "no-nonce": "ids of their own a request that comes late aborts what was decided.",
    "two-owners": "the generation a process that wakes commits what its successor has aborted.",
    "no-tombstone": "the row of the check-back a service that wakes commits what was aborted.",
}


def print_verdict(report: TransfersReport) -> None:
    """Print the verdict on stdout."""
    verdict, told = report.verdict, report.told
    tell("")
    words = {"committed": "returned", "failed": "raised, and count for nothing"}
    ended = ", ".join(f"{told[w]:,} {text}" for w, text in words.items())
    unsaid = sum(n for word, n in told.items() if word not in words)
    print_number(told.total(), f"transfers begun: {ended}, {unsaid:,} cut off")
    print_number(verdict.rows, f"rows of transfers in {report.database}")
    print_number(verdict.read, f"records in {TOPIC}, {verdict.distinct:,} distinct")
    print_counts(TRANSFER_ANOMALIES, verdict.violations)
    print_counts(END_ANOMALIES[:2], report.at_the_end)
    hit = sum(fault.open_transactions for fault in report.faults)
    tell(
        f"{len(report.faults)} faults hit {hit} open transactions; readers waited for "
        f"{verdict.longest_wait_s:.1f} s at most, while no process or server was stopped"
    )
    print_findings(report.findings)
    tell("")
    tell(sentence(report))


def sentence(report: TransfersReport) -> str:
    return demo_verdict.sentence(
        report,
        without=WITHOUT.get(report.broken, ""),
        no_proof="no fault hit a transaction that was open",
        right="each row has its event, and each event its row",
    )


def as_json(report: TransfersReport) -> dict[str, Any]:
    verdict = report.verdict
    return verdict_json(report) | {
        "database": report.database,
        "rows": verdict.rows,
        "read": verdict.read,
        "distinct": verdict.distinct,
        "told": dict(report.told),
        "longest_wait_s": round(verdict.longest_wait_s, 2),
        "restarts": report.restarts,
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
