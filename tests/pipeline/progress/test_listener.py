"""Test the line for each batch, the metrics file, and Spark's progress of a running query."""

import logging
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from oncelog.client import BlockingAdmin, BlockingProducer
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.pipeline import exactly_once, lag_of, watch
from oncelog.pipeline.progress.listener import BatchListener

from ...waiting import until
from .test_figures import progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

EACH, LIMIT = 30, 40  # records in each of two partitions; offsets in a batch


def read(spark: "SparkSession", cluster: Cluster) -> "DataFrame":
    return (
        spark.readStream.format("oncelog")
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .options(subscribe="watched", startingOffsets="earliest", maxOffsetsPerTrigger=LIMIT)
        .load()
    )


def start(spark: "SparkSession", cluster: Cluster, folder: Path) -> "StreamingQuery":
    return exactly_once(
        read(spark, cluster).where("partition = 0 OR offset < 10").select("value"),
        sink_id="watched",
        bootstrap=cluster.bootstrap,
        topic="watched-output",
        checkpoint=str(folder / "checkpoint"),
        query_name="bills",
        trigger={"availableNow": True},
    )


@pytest.mark.in_turn
def test_query_listener_reports_lines_figures_and_lag(
    spark: "SparkSession",
    cluster: Cluster,
    admin: BlockingAdmin,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    admin.create_topic("watched", partitions=2)
    admin.create_topic("watched-output", partitions=1)
    with BlockingProducer(cluster.bootstrap) as producer:
        for partition in range(2):
            producer.send_many("watched", [b"value"] * EACH, partition=partition)
    caplog.set_level(logging.INFO, "oncelog.progress")
    file = tmp_path / "bills.prom"
    listener = watch(spark, metrics_file=file)
    try:
        query = start(spark, cluster, tmp_path)
        assert query.awaitTermination(60)
        until(lambda: 'query_running{query="bills"} 0' in file.read_text(), "the end is told")
        recent = query.recentProgress
        bad = (
            read(spark, cluster)
            .selectExpr("raise_error('no such bill')")
            .writeStream.format("noop")
            .queryName("broken")
            .option("checkpointLocation", str(tmp_path / "broken"))
            .start()
        )
        with pytest.raises(Exception, match="no such bill"):
            bad.awaitTermination(60)
        until(lambda: 'query_running{query="broken"} 0' in file.read_text(), "that end, too")
    finally:
        spark.streams.removeListener(listener)
    lines = [r.getMessage() for r in caplog.records if r.name == "oncelog.progress"]
    first, second, end, failure = lines
    shape = r"query bills: batch \d: (\d+) rows read, (\d+) written, (.*), \d+ ms"
    assert re.fullmatch(shape, first).groups() == (  # type: ignore[union-attr]
        "40", "30", "20 offsets behind in 2 partitions, 10 of them in watched/0"
    )  # fmt: skip
    assert re.fullmatch(shape, second).groups() == ("20", "10", "0 offsets behind")  # type: ignore[union-attr]
    assert end == "query bills has ended"
    assert failure.startswith("query broken has failed: ") and "no such bill" in failure
    assert [(each.numInputRows, lag_of(each).most) for each in recent] == [(40, 10), (20, 0)]  # type: ignore[union-attr]
    text = file.read_text()
    for name, value in {
        "rows_read_total": 60,
        "rows_written_total": 40,
        "batches_total": 2,
    }.items():
        assert f'oncelog_spark_{name}{{query="bills"}} {value}' in text
    behind = 'oncelog_spark_offsets_behind_latest{query="bills",topic="watched",partition="1"} 0'
    assert behind in text


class Told(dict[str, Any]):
    """Progress in the form in which Spark reports it, a mapping with some attributes."""

    id, runId, batchId = "1-2-3", "run-1", 7


def event(run: str, **more: Any) -> Any:
    return SimpleNamespace(runId=run, id="1-2-3", name="bills", exception=None, **more)


def test_query_older_than_its_listener_has_its_name_in_the_metrics(
    tmp_path: Path,
) -> None:
    listener = BatchListener(tmp_path / "q.prom")
    listener.onQueryProgress(event("run-1", progress=Told(progress())))
    listener.onQueryTerminated(event("run-1"))
    text = (tmp_path / "q.prom").read_text()
    assert 'query_running{query="bills"} 0' in text
    assert "1-2-3" not in text


def test_query_end_event_of_an_earlier_run_is_ignored_after_a_restart(tmp_path: Path) -> None:
    listener = BatchListener(tmp_path / "q.prom")
    listener.onQueryStarted(event("run-1"))
    listener.onQueryStarted(event("run-2"))  # run-2 starts while run-1 is still running
    listener.onQueryTerminated(event("run-1"))
    assert 'query_running{query="bills"} 1' in (tmp_path / "q.prom").read_text()
    listener.onQueryTerminated(event("run-2"))
    assert 'query_running{query="bills"} 0' in (tmp_path / "q.prom").read_text()


FORKING = """
import os, sys
from types import SimpleNamespace
from oncelog.pipeline.progress.listener import watch

def say(word):
    os.write(1, f"{word} {os.getpid() == parent}\\n".encode())

parent = os.getpid()
bus = SimpleNamespace(waitUntilEmpty=lambda limit_ms: say("waited"))
context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(listenerBus=lambda: bus)))
streams = SimpleNamespace(addListener=lambda _: None, removeListener=lambda _: say("removed"))
watch(SimpleNamespace(sparkContext=context, streams=streams))
if os.fork() == 0:
    sys.exit()
os.wait()
"""


def test_query_listener_is_removed_at_the_end_of_the_program_but_not_of_a_forked_child() -> None:
    """The child has the parent's connections to the JVM."""
    done = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["waited True", "removed True"], done


FROZEN = """
import threading
from types import SimpleNamespace
from oncelog.pipeline.progress import listener

listener.LAST_EVENTS_MS = 0
bus = SimpleNamespace(waitUntilEmpty=lambda limit_ms: threading.Event().wait())
context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(listenerBus=lambda: bus)))
streams = SimpleNamespace(addListener=lambda _: None, removeListener=print)
listener.watch(SimpleNamespace(sparkContext=context, streams=streams))
"""


def test_program_with_a_query_listener_ends_although_the_jvm_does_not_answer() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FROZEN], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == ""
