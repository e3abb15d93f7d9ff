"""The figures of `bench txn` as rows of a table, and as a page that needs nothing from anywhere."""

from collections.abc import Sequence
from typing import Any

from ..cluster import html
from .load import percentile
from .transactions import TransactionResult

COLUMNS = {
    "records": "RECORDS",
    "partitions": "PARTITIONS",
    "transactions_s": "TRANSACTIONS/s",
    "records_s": "RECORDS/s",
    "commit_p50": "COMMIT p50 ms",
    "commit_p99": "p99 ms",
    "whole_p50": "WHOLE p50 ms",
    "plain_p50": "PLAIN p50 ms",
    "overhead": "OVERHEAD ms",
    "share": "% OF PLAIN",
}


def rows(results: Sequence[TransactionResult]) -> list[dict[str, Any]]:
    """One row a cell; medians over the repetitions. PLAIN: the same records without transaction."""
    found: list[dict[str, Any]] = []
    for result in results:
        rate = result.median(lambda run: run.transactions_per_s)
        found.append(
            {
                "records": result.cell.records,
                "partitions": result.cell.partitions,
                "transactions_s": round(rate, 1),
                "records_s": round(rate * result.cell.records),
                "commit_p50": result.median(lambda run: percentile(run.commit_ms, 0.5)),
                "commit_p99": result.median(lambda run: percentile(run.commit_ms, 0.99)),
                "whole_p50": result.median(lambda run: percentile(run.whole_ms, 0.5)),
                "plain_p50": result.median(lambda run: percentile(run.plain_ms, 0.5)),
                "overhead": result.median(lambda run: run.overhead_ms),
                "share": round(100 * result.median(lambda run: run.share_of_plain), 1),
            }
        )
    return found


def page(environment: dict[str, Any], results: Sequence[TransactionResult]) -> str:
    return html.page(
        "oncelog bench txn",
        "What a transaction costs",
        html.facts(environment),
        html.table(COLUMNS.values(), [[row[key] for key in COLUMNS] for row in rows(results)]),
        "<p>One producer, one transaction after another. PLAIN is the time of the same records "
        "by an idempotent producer without transactions, OVERHEAD what the transaction takes "
        "beyond that.</p>",
    )
