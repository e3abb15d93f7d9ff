"""Test the figures and the page of the grid of `bench txn`, without a cluster."""

from html import escape

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.proof.bench.pages import failover_report, transactions_report
from oncelog.proof.bench.transactions import (
    TransactionCell,
    TransactionGrid,
    TransactionResult,
    TransactionRun,
    percentile,
    rows,
)
from oncelog.proof.pages.run_page import run_file


def result() -> TransactionResult:
    runs = [
        TransactionRun([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [1.0, 1.0, 1.0]),
        TransactionRun([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [1.0, 1.0, 1.0]),
        TransactionRun([2.0, 2.0, 2.0], [4.0, 4.0, 4.0], [2.0, 2.0, 2.0]),
    ]
    return TransactionResult(TransactionCell(100, 3), runs)


def test_bench_transactions_use_no_more_partitions_than_records() -> None:
    grid = TransactionGrid(records=[1, 10, 100], partitions=[1, 3, 10])
    assert [(cell.records, cell.partitions) for cell in grid.cells()] == [
        (1, 1), (10, 1), (10, 3), (10, 10), (100, 1), (100, 3), (100, 10),
    ]  # fmt: skip


@pytest.mark.parametrize("records, partitions", [([0], [1]), ([1], [0])])
def test_bench_transactions_grid_with_zero_records_or_partitions_is_refused(
    records: list[int], partitions: list[int]
) -> None:
    with pytest.raises(Failure):
        TransactionGrid(records=records, partitions=partitions).cells()


def test_bench_figures_are_medians_over_the_repetitions() -> None:
    (row,) = rows([result()])
    assert row == {
        "RECORDS": 100,
        "PARTITIONS": 3,
        "TRANSACTIONS/s": 250.0,
        "RECORDS/s": 25_000,
        "COMMIT p50 ms": 2.0,
        "p99 ms": 2.0,
        "WHOLE p50 ms": 4.0,
        "PLAIN p50 ms": 1.0,
        "OVERHEAD ms": 2.0,
        "% OF PLAIN": 50.0,
    }


def test_bench_transactions_page_has_all_headings_and_its_json_all_repetitions() -> None:
    shown = run_file(transactions_report({"cpu": "a <b>"}, [result()]))
    assert "a &lt;b&gt;" in shown
    assert all(f">{escape(heading)}</th>" in shown for heading in rows([result()])[0])
    repetitions = result().as_json()["repetitions"]
    assert [each["transactions"] for each in repetitions] == [3, 3, 3]
    assert repetitions[0]["commit_ms"] == {"p50": 2.0, "p90": 3.0, "p99": 3.0}


def test_bench_percentiles_of_few_values_are_among_them() -> None:
    assert percentile([5.0], 0.99) == 5.0
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0


def test_bench_failover_report_has_a_bar_for_each_kill() -> None:
    found = {"kills": 2, "p50_ms": 95.0, "p99_ms": 120.0, "max_ms": 120.0, "all_ms": [70.0, 120.0]}
    report = failover_report({"cpu": "c"}, found)
    assert report.charts[0].bars == [("kill 1", 70.0), ("kill 2", 120.0)]
    assert ("p99, ms", 120.0) in report.facts and "kill 2" in run_file(report)
