"""Test the lag, the log line and the Prometheus text made from Spark's report of a batch."""

import json
from pathlib import Path
from typing import Any

import pytest

from oncelog.pipeline.progress import written
from oncelog.pipeline.progress.batch_figures import figures_of
from oncelog.pipeline.progress.exposition import Exposition
from oncelog.pipeline.progress.lag import lag_of
from oncelog.pipeline.progress.written import note_written, take_written
from oncelog.pipeline.source.offsets import Position

KEYS = [("a", 0), ("a", 1), ("b", 0)]


def offsets(*numbers: int) -> str:
    ids = {"a": "aa", "b": "bb"}
    return json.dumps(Position(dict(zip(KEYS, numbers, strict=False)), ids).to_json())


def source(end: str | None, latest: str | None) -> dict[str, Any]:
    return {"endOffset": end, "latestOffset": latest}


def progress(*sources: dict[str, Any], name: str | None = "bills", counted: int = -1) -> Any:
    return {
        "id": "1-2-3",
        "name": name,
        "batchId": 7,
        "numInputRows": 100,
        "durationMs": {"triggerExecution": 431, "addBatch": 400},
        "sources": list(sources),
        "sink": {"numOutputRows": counted},
    }


def test_query_lag_is_the_number_of_offsets_not_read_yet_in_each_partition() -> None:
    lag = lag_of(progress(source(offsets(10, 20), offsets(15, 20, 3))))
    assert lag is not None
    assert lag.by_partition == {("a", 0): 5, ("a", 1): 0, ("b", 0): 3}, "a new one begins at 0"
    assert (lag.total, lag.least, lag.most, lag.average) == (8, 0, 5, 8 / 3)


def test_query_lag_of_a_partition_in_two_sources_is_the_larger_lag() -> None:
    two = progress(source(offsets(10), offsets(12)), source(offsets(5), offsets(11)))
    assert lag_of(two).by_partition == {("a", 0): 6}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "of",
    [
        None,
        progress(),
        progress(source(offsets(1), None)),
        progress(source("17", "18")),
        progress(source("not json", offsets(1))),
        progress(source('{"flights":{"0":23}}', '{"flights":{"0":24}}')),
    ],
)
def test_query_lag_without_offsets_of_the_oncelog_source_is_unknown(of: Any) -> None:
    assert lag_of(of) is None


def test_query_lag_is_read_from_offsets_given_as_text_or_as_objects() -> None:
    as_values = source(json.loads(offsets(1)), json.loads(offsets(4)))
    assert lag_of(progress(as_values)).total == 3  # type: ignore[union-attr]


def test_query_progress_line_of_a_batch_has_its_figures() -> None:
    behind = progress(source(offsets(10, 20, 0), offsets(15, 20, 3)))
    assert str(figures_of(behind, 90)) == (
        "query bills: batch 7: 100 rows read, 90 written, 8 offsets behind in 3 partitions, "
        "5 of them in a/0, 431 ms"
    )
    current = progress(source(offsets(10), offsets(10)), name=None)
    assert str(figures_of(current, None)) == (
        "query 1-2-3: batch 7: 100 rows read, ? written, 0 offsets behind, 431 ms"
    )
    assert str(figures_of(progress(counted=5), None)).startswith(
        "query bills: batch 7: 100 rows read, 5 written, lag not known"
    )


def test_query_rows_written_are_added_up_by_batch_and_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(written, "KEPT", 2)
    note_written("q", 1, 10)
    note_written("q", 1, 5)
    assert (take_written("q", 1), take_written("q", 1)) == (15, None)
    for batch in range(3):
        note_written("q", batch, batch)
    assert [take_written("q", batch) for batch in range(3)] == [None, 1, 2]


def test_query_metrics_file_is_in_prometheus_text_format(tmp_path: Path) -> None:
    told, file = Exposition(), tmp_path / "q.prom"
    told.write(file)
    assert file.read_text() == ""
    told.started('a "name"')
    told.took(figures_of(progress(source(offsets(10, 20), offsets(15, 20))), 90))
    told.took(figures_of(progress(source(offsets(10, 20), offsets(10, 21))), 90))
    told.ended("bills")
    told.write(file)
    lines = file.read_text().splitlines()
    assert 'oncelog_spark_query_running{query="a \\"name\\""} 1' in lines
    assert 'oncelog_spark_query_running{query="bills"} 0' in lines
    assert 'oncelog_spark_rows_read_total{query="bills"} 200' in lines
    assert 'oncelog_spark_rows_written_total{query="bills"} 180' in lines
    assert 'oncelog_spark_batches_total{query="bills"} 2' in lines
    assert 'oncelog_spark_batch_duration_seconds{query="bills"} 0.431' in lines
    behind = [line for line in lines if line.startswith("oncelog_spark_offsets_behind_latest{")]
    assert behind == [
        'oncelog_spark_offsets_behind_latest{query="bills",topic="a",partition="0"} 0',
        'oncelog_spark_offsets_behind_latest{query="bills",topic="a",partition="1"} 1',
    ]
    assert lines.count("# TYPE oncelog_spark_offsets_behind_latest gauge") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["q.prom"]


def test_query_metrics_keep_running_queries_and_only_those_that_ended_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oncelog.pipeline.progress.exposition.ENDED_MAX", 2)
    told = Exposition()
    for name in ("one", "two", "three", "four"):
        told.started(name)
    for name in ("one", "two", "three"):
        told.ended(name)
    assert [name for name in ("one", "two", "three", "four") if f'"{name}"' in told.text()] == [
        "two", "three", "four"
    ]  # fmt: skip
