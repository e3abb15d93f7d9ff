"""Test the grid of `bench replication`, its summary line and its page, without a cluster."""

import re

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.proof.bench import floor as bench_floor
from oncelog.proof.bench.floor import Floor
from oncelog.proof.bench.load import LoadResult, perf_line
from oncelog.proof.bench.pages import replication_report
from oncelog.proof.bench.replication import (
    Cell,
    Repetition,
    ReplicationGrid,
    ReplicationResult,
)
from oncelog.proof.bench.report import rows
from oncelog.proof.bench.target import NodeUsage
from oncelog.proof.pages.run_page import run_file
from oncelog.proof.pages.run_report import read_report

# The format that parsers of Kafka's ProducerPerformance expect.
PERF_LINE = re.compile(
    r"^\d+ records sent, \d+\.\d records/sec \(\d+\.\d\d MB/sec\), \d+\.\d\d ms avg latency, "
    r"\d+\.\d\d ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\.$"
)


def load(mean_ms: float = 3.25) -> LoadResult:
    return LoadResult(
        records=50_000,
        failed=0,
        record_bytes=1000,
        seconds=2.0,
        percentiles_ms={50.0: 2.9, 95.0: 7.1, 99.0: 12.0, 99.9: 30.9},
        mean_ms=mean_ms,
        max_ms=44.0,
        curve=[(0, 1.0), (50, 2.9), (100, 44.0)],
    )


def result(link_bytes: int | None = 100_000_000) -> ReplicationResult:
    begun = NodeUsage(0.8, 40_000_000, 1_000, 7, 3)
    sent = None if link_bytes is None else link_bytes + 7
    ended = NodeUsage(1.0, 50_000_000, 6_000, sent, None if link_bytes is None else 4_003)
    used = {1: ended.since(begun), 2: NodeUsage(0.1, 1_000_000, 500, 0, 1_000)}
    one = Repetition(load(), load(), 1000.0, used)
    return ReplicationResult(Cell(3, "all", 2, 1000, 16384), [one])


def test_bench_summary_line_has_the_form_of_kafka_producer_perf_test():
    line = perf_line(load())
    assert PERF_LINE.match(line)
    assert line.startswith("50000 records sent, 25000.0 records/sec (23.84 MB/sec), 3.25 ms avg")
    assert line.endswith("44.00 ms max latency, 2 ms 50th, 7 ms 95th, 12 ms 99th, 30 ms 99.9th.")


def test_bench_grid_varies_min_insync_only_with_acks_all():
    grid = ReplicationGrid(
        replication_factors=[1, 3],
        acks=["0", "all"],
        min_insync=[1, 2],
        record_bytes=[100],
        batch_bytes=[16384],
    )
    combined = [(c.replication_factor, c.acks, c.min_insync) for c in grid.cells()]
    assert combined == [(1, "0", 1), (1, "all", 1), (3, "0", 1), (3, "all", 1), (3, "all", 2)]


def test_bench_with_unknown_acks_is_refused():
    grid = ReplicationGrid(
        replication_factors=[1], acks=["2"], min_insync=[1], record_bytes=[1], batch_bytes=[1]
    )
    with pytest.raises(Failure, match="acks=2"):
        grid.cells()


def test_bench_node_metrics_are_shown_or_marked_unknown():
    (row,) = rows([result()])
    assert row["CPU s/GB"] == pytest.approx(6.0)
    assert row["SENT MB/MB"] == pytest.approx(2.0)
    assert row["RSS MB"] == 50
    assert row["MSGS/MB"] == pytest.approx(100)
    assert row["SWITCHES/MB"] == pytest.approx(110)
    (unknown,) = rows([result(None)])
    assert unknown["SENT MB/MB"] is None and unknown["MSGS/MB"] is None


def test_bench_cpu_time_is_shown_as_a_multiple_of_the_hardware_floor():
    floor = Floor(16384, receive=0.5, checksum=0.1, write=0.4, link=0.6)
    assert floor.cpu_s_per_gb(1) == pytest.approx(1.0)
    (row,) = rows([result()], {16384: floor})
    assert row["FLOOR s/GB"] == pytest.approx(3.0)
    assert row["x FLOOR"] == pytest.approx(2.0)
    without_nodes = ReplicationResult(result().cell, [Repetition(load(), load(), 1000.0, {})])
    (foreign,) = rows([without_nodes], {16384: floor})
    assert foreign["x FLOOR"] is None, "another cluster's CPU is not known"


@pytest.mark.parametrize("batch_bytes", [0, 1, 16384, 5_000_000])
def test_bench_floor_measures_a_positive_cost_for_each_step(
    batch_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_floor, "STEP_BYTES", 16 << 20)
    monkeypatch.setattr(bench_floor, "PIECES_MAX", 1 << 12)
    floor = bench_floor.measure_floor(batch_bytes)
    assert min(floor.receive, floor.checksum, floor.write, floor.link) > 0


def test_bench_replication_report_is_one_self_contained_page() -> None:
    text = run_file(replication_report({"cpu": "<fast>", "acks": ["1", "all"]}, [result()]))
    assert "<svg" in text and "&lt;fast&gt;" in text and ">1 all<" in text
    assert not re.search(r"""src=|href="[^#]|https?://|<script""", text)
    (line,) = re.findall(r">(\d+ records sent[^<]*)<", text)
    assert PERF_LINE.match(line)


def test_bench_chart_omits_unknown_values() -> None:
    report = replication_report({}, [result(), result(None)])
    assert [len(chart.bars) for chart in report.charts] == [2, 2, 2, 1]
    again = read_report(report.as_json())
    assert again.as_json() == report.as_json()
