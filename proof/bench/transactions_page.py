"""The figures of `bench txn` as rows of a table, and as a page that needs nothing from anywhere."""

from collections.abc import Sequence
from typing import Any

from ...deploy.cluster import html
from .load import percentile
from .transactions import TransactionResult


def rows(results: Sequence[TransactionResult]) -> list[dict[str, Any]]:
    """One row a cell; medians over the repetitions. PLAIN: the same records without transaction."""
    found: list[dict[str, Any]] = []
    for result in results:
        rate = result.median(lambda run: run.per_s) or 0
        found.append({
            "RECORDS": result.cell.records,
            "PARTITIONS": result.cell.partitions,
            "TRANSACTIONS/s": round(rate, 1),
            "RECORDS/s": round(rate * result.cell.records),
            "COMMIT p50 ms": result.median(lambda run: percentile(run.commit_ms, 0.5)),
            "p99 ms": result.median(lambda run: percentile(run.commit_ms, 0.99)),
            "WHOLE p50 ms": result.median(lambda run: percentile(run.whole_ms, 0.5)),
            "PLAIN p50 ms": result.median(lambda run: percentile(run.plain_ms, 0.5)),
            "OVERHEAD ms": result.median(lambda run: run.overhead_ms),
            "% OF PLAIN": round(100 * (result.median(lambda run: run.share_of_plain) or 0), 1),
        })  # fmt: skip
    return found


def page(environment: dict[str, Any], results: Sequence[TransactionResult]) -> str:
    return html.page(
        "oncelog bench txn",
        "What a transaction costs",
        html.facts(environment),
        html.rows_table(rows(results)),
        "<p>One producer, one transaction after another. PLAIN is the time of the same records "
        "by an idempotent producer without transactions, OVERHEAD what the transaction takes "
        "beyond that.</p>",
    )
