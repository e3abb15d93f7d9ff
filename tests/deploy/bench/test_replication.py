"""The grid, the summary line, the page; no cluster."""

import re

import pytest

from oncelog.deploy.bench.load import LoadResult, perf_line
from oncelog.deploy.bench.replication import (
    Cell,
    Repetition,
    ReplicationGrid,
    ReplicationResult,
)
from oncelog.deploy.bench.replication_page import page
from oncelog.deploy.bench.report import rows
from oncelog.deploy.bench.target import NodeUsage
from oncelog.deploy.cluster.failure import Failure

# The form of Kafka's ProducerPerformance, as its users parse it.
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
    begun = NodeUsage(0.8, 40_000_000, 7)
    ended = NodeUsage(1.0, 50_000_000, None if link_bytes is None else link_bytes + 7)
    used = {1: ended.since(begun), 2: NodeUsage(0.1, 1_000_000, 0)}
    one = Repetition(load(), load(), 1000.0, used)
    return ReplicationResult(Cell(3, "all", 2, 1000, 16384), [one])


def test_the_summary_line_has_kafkas_form():
    line = perf_line(load())
    assert PERF_LINE.match(line)
    assert line.startswith("50000 records sent, 25000.0 records/sec (23.84 MB/sec), 3.25 ms avg")
    assert line.endswith("44.00 ms max latency, 2 ms 50th, 7 ms 95th, 12 ms 99th, 30 ms 99.9th.")


def test_min_insync_is_varied_only_where_it_counts():
    grid = ReplicationGrid(
        replication_factors=[1, 3],
        acks=["0", "all"],
        min_insync=[1, 2],
        record_bytes=[100],
        batch_bytes=[16384],
    )
    combined = [(c.replication_factor, c.acks, c.min_insync) for c in grid.cells()]
    assert combined == [(1, "0", 1), (1, "all", 1), (3, "0", 1), (3, "all", 1), (3, "all", 2)]


def test_an_unknown_acks_is_refused():
    grid = ReplicationGrid(
        replication_factors=[1], acks=["2"], min_insync=[1], record_bytes=[1], batch_bytes=[1]
    )
    with pytest.raises(Failure, match="acks=2"):
        grid.cells()


def test_node_metrics_are_shown_or_unknown():
    (row,) = rows([result()])
    assert row["CPU s/GB"] == pytest.approx(6.0)
    assert row["SENT MB/MB"] == pytest.approx(2.0)
    assert row["RSS MB"] == 50
    (unknown,) = rows([result(None)])
    assert unknown["SENT MB/MB"] is None


def test_the_page_needs_nothing_from_anywhere():
    text = page({"cpu": "<fast>"}, [result(), result(None)])
    assert "<svg" in text
    assert "&lt;fast&gt;" in text
    assert not re.search(r"(src|href)=|https?://|<script", text)
    (line, *_) = re.findall(r"<code>(.*?)</code>", text)
    assert PERF_LINE.match(line)
