"""Test Spark's own loop over the sink with a query that is broken at each point.

One JVM serves all tests, so a death is an exception here. test_kills.py kills processes.
"""

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oncelog.client import BlockingAdmin
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.pipeline.failure_words import sentence_of
from oncelog.pipeline.sink.cluster import THREAD
from oncelog.pipeline.sink.sink import ExactlyOnceSink

from ...interop.client_peers import read_to_end
from . import stateful_job
from .job import POINTS, Died, Job, MortalSink, start, write_input
from .output import assert_once
from .stateful_job import BreakableSink, StatefulJob
from .stateful_queries import BATCHES, CONFS, STORE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOW = pytest.mark.spark_slow


def run_until_it_ends(spark: "SparkSession", job: Job) -> int:
    """Restart the query until it finishes, and return how often it died."""
    from pyspark.errors import StreamingQueryException

    def die() -> None:
        raise Died

    for deaths in range(len(POINTS) + 1):
        sink = MortalSink(job, die)
        query = start(spark, job, sink)
        try:
            query.awaitTermination()
        except StreamingQueryException as problem:
            assert "Died" in str(problem), problem
        else:
            return deaths
        finally:
            sink.close()
    raise AssertionError("it dies for ever")


@pytest.mark.parametrize(
    ("mode", "points"),
    [
        ("prepared", POINTS),
        pytest.param("driver", (POINTS[1], POINTS[2], POINTS[4]), marks=SLOW),
    ],
)
def test_query_broken_at_each_point_writes_every_row_once(
    spark: "SparkSession",
    cluster: Cluster,
    admin: BlockingAdmin,
    tmp_path: Path,
    mode: str,
    points: tuple[str, ...],
) -> None:
    topic = f"out-{mode}"
    admin.create_topic(topic, partitions=3)
    deaths = {point: batch for batch, point in enumerate(points, 1)}
    job = Job(cluster.bootstrap, topic, str(tmp_path), mode=mode, deaths=deaths, sink_id=topic)
    values = write_input(job, batches=len(points) + 2)
    died = run_until_it_ends(spark, job)
    assert died == len(points) - ("mid-write" in points)  # Spark itself tries a task again
    assert all(job.mark(point).exists() for point in points)
    assert_once(cluster.bootstrap, topic, values)


@pytest.fixture
def own_state(spark: "SparkSession") -> Iterator[None]:
    """Set `CONFS` for a test, and unset all settings of Spark's state after it."""
    for name, value in CONFS.items():
        spark.conf.set(name, value)
    yield
    for name in (*CONFS, f"{STORE}.providerClass", f"{STORE}.checkpointFormatVersion"):
        spark.conf.unset(name)


def run_side_by_side(spark: "SparkSession", job: StatefulJob, deaths: dict[str, int]) -> None:
    """Run all queries, and let each die and restart once at each of these points and batches."""
    from pyspark.errors import StreamingQueryException

    def sink_of(name: str) -> BreakableSink:
        def reached(point: str, batch: int) -> None:
            if deaths.get(point) == batch and (name, point) not in died:
                died.add((name, point))
                raise Died

        return BreakableSink(job, name, reached)

    died: set[tuple[str, str]] = set()
    running = {name: stateful_job.start(spark, job, name, sink_of(name)) for name in job.names}
    while running:
        for name, query in list(running.items()):
            try:
                if query.awaitTermination(0.1):
                    del running[name]
            except StreamingQueryException as problem:
                assert "Died" in str(problem), problem
                running[name] = stateful_job.start(spark, job, name, sink_of(name))
    assert len(died) == len(deaths) * len(job.names)


@pytest.mark.usefixtures("own_state")
@pytest.mark.parametrize(
    ("names", "mode"),
    [
        pytest.param(["files-windows", "files-joined"], "transactional", marks=SLOW),
        pytest.param(["rocksdb-1-deduplicated", "rocksdb-1-counted"], "prepared", marks=SLOW),
        pytest.param(["rocksdb-2-joined", "rocksdb-2-counted"], "transactional", marks=SLOW),
        (["rocksdb-2-windows"], "transactional"),
    ],
    ids=["files", "rocksdb-1", "rocksdb-2", "rocksdb-2-windows"],
)
@pytest.mark.in_turn
def test_query_state_and_watermark_continue_after_a_death(
    spark: "SparkSession",
    cluster: Cluster,
    admin: BlockingAdmin,
    tmp_path: Path,
    names: list[str],
    mode: str,
) -> None:
    """For each format of the state two kinds of queries are tested.

    test_stateful_kills.py tests all kinds with real deaths. The default run has one kind with the
    format in which the checkpoint itself names the state of each batch.
    """
    rows: list[dict[str, list[str]]] = []
    for run, deaths in {"whole": {}, "broken": {POINTS[4]: 1, POINTS[3]: 3, POINTS[1]: 4}}.items():
        folder = tmp_path / f"{run}-{names[0]}"
        job = StatefulJob(cluster.bootstrap, str(folder), names, mode)
        job.write_files()
        for query in job.names:
            admin.create_topic(job.topic(query), partitions=2)
        run_side_by_side(spark, job, deaths)
        rows.append(job.rows())
    assert rows[0] == rows[1]
    assert all(len(found) > 2 * BATCHES for found in rows[0].values())


def test_query_with_a_contradicting_checkpoint_stops_with_a_reason(
    spark: "SparkSession", cluster: Cluster, admin: BlockingAdmin, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    admin.create_topic("fits", partitions=1)
    (tmp_path / "new").mkdir()
    job = Job(cluster.bootstrap, "fits", str(tmp_path), sink_id="fits")
    values = write_input(job, batches=2, rows=10)
    run_until_it_ends(spark, job)
    deleted = Job(cluster.bootstrap, "fits", str(tmp_path / "new"), sink_id="fits")
    write_input(deleted, batches=2, rows=10)
    query = start(spark, deleted, MortalSink(deleted, lambda: None))
    with pytest.raises(StreamingQueryException, match="replaces_query=") as stopped:
        query.awaitTermination()
    assert sentence_of(stopped.value).startswith("SinkStopped: Sink fits belongs to query ")
    assert_once(cluster.bootstrap, "fits", values)


def test_query_stops_at_a_decided_batch_that_spark_has_planned_again(
    spark: "SparkSession", cluster: Cluster, admin: BlockingAdmin, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    admin.create_topic("anew", partitions=1)
    job = Job(cluster.bootstrap, "anew", str(tmp_path), sink_id="anew")
    values = write_input(job, batches=2, rows=10)
    run_until_it_ends(spark, job)
    log = Path(job.checkpoint)
    (log / "commits" / "1").unlink()
    (log / "commits" / ".1.crc").unlink()
    run_until_it_ends(spark, job)  # the same batch again
    assert_once(cluster.bootstrap, "anew", values)
    (log / "commits" / "1").unlink()
    (log / "commits" / ".1.crc").unlink()
    planned = log / "offsets" / "1"
    text, changed = re.subn(r'"batchTimestampMs":\d+', '"batchTimestampMs":1', planned.read_text())
    assert changed == 1
    planned.write_text(text)
    (log / "offsets" / ".1.crc").unlink()
    query = start(spark, job, MortalSink(job, lambda: None))
    with pytest.raises(StreamingQueryException, match="has planned it anew"):
        query.awaitTermination()
    assert_once(cluster.bootstrap, "anew", values)


def test_query_batch_repeated_with_other_rows_is_refused_and_with_equal_rows_written_once(
    spark: "SparkSession", cluster: Cluster, admin: BlockingAdmin, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    admin.create_topic("parts", partitions=1)
    job = Job(cluster.bootstrap, "parts", str(tmp_path), sink_id="parts")
    values = write_input(job, batches=2, rows=10)
    sink = MortalSink(job, lambda: None)

    def run(others_in: int) -> None:
        def each_batch(frame: Any, batch_id: int) -> None:
            for _ in range(2):
                sink(frame.where("value < '1'"), batch_id)
            if batch_id == others_in:
                sink(frame.where("value >= '1'"), batch_id)

        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(job.input))
        writer = lines.writeStream.foreachBatch(each_batch).trigger(availableNow=True)
        writer.option("checkpointLocation", job.checkpoint).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="batch 1 before, and is given other rows"):
        run(others_in=1)
    run(others_in=-1)  # the same batch of another run
    sink.close()
    assert_once(cluster.bootstrap, "parts", [value for value in values if value < "1"])


def test_sink_reused_by_a_restarted_query_writes_the_repeated_batch_once(
    spark: "SparkSession", cluster: Cluster, admin: BlockingAdmin, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    admin.create_topic("again", partitions=1)
    job = Job(cluster.bootstrap, "again", str(tmp_path), sink_id="again")
    values = write_input(job, batches=2, rows=10)
    sink, failures = MortalSink(job, lambda: None), ["after the sink"]

    def each_batch(frame: Any, batch_id: int) -> None:
        sink(frame, batch_id)
        if batch_id == 1 and failures:
            raise RuntimeError(failures.pop())

    def run() -> None:
        (
            spark.readStream.option("maxFilesPerTrigger", 1).text(str(job.input))
            .writeStream.foreachBatch(each_batch)
            .option("checkpointLocation", job.checkpoint)
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )  # fmt: skip

    with pytest.raises(StreamingQueryException, match="after the sink"):
        run()
    run()
    sink.close()
    assert_once(cluster.bootstrap, "again", values)


def test_sink_that_cannot_start_leaves_no_thread(
    spark: "SparkSession", cluster: Cluster, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    job = Job(cluster.bootstrap, "never", str(tmp_path))
    write_input(job, batches=1, rows=1)
    sink = ExactlyOnceSink("never", cluster.bootstrap, "never", transaction_timeout_ms=10**9)
    before = {each.ident for each in threading.enumerate() if each.name == THREAD}
    with pytest.raises(StreamingQueryException, match="is above transaction"):
        start(spark, job, sink).awaitTermination()
    assert {each.ident for each in threading.enumerate() if each.name == THREAD} <= before


@pytest.mark.parametrize("name", ["enabled", "enableFullRetryOnMismatch"])
def test_spark_setting_that_compares_recomputed_shuffles_is_on_by_default(
    spark: "SparkSession", name: str
) -> None:
    assert spark.conf.get(f"spark.sql.shuffle.orderIndependentChecksum.{name}") == "true"


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("'a' AS value, 1 AS id", "no column id"),
        ("'a' AS key", "column `value`"),
        ("1 AS value", "value is int"),
        ("'a' AS value, 1L AS partition", "partition is bigint"),
    ],
)
def test_query_with_rows_that_cannot_be_written_is_refused_before_its_start(
    spark: "SparkSession", tmp_path: Path, columns: str, words: str
) -> None:
    from oncelog.pipeline import exactly_once

    rows: Any = spark.readStream.format("rate").load().selectExpr(*columns.split(", "))
    with pytest.raises(ValueError, match=words):
        exactly_once(
            rows,
            sink_id="refused",
            bootstrap="127.0.0.1:1",
            topic="t",
            checkpoint=str(tmp_path),
        )


@pytest.mark.parametrize("mode", ["prepared", "transactional"])
def test_query_rows_arrive_with_all_their_columns(
    spark: "SparkSession", cluster: Cluster, admin: BlockingAdmin, tmp_path: Path, mode: str
) -> None:
    from oncelog.client import BlockingConsumer
    from oncelog.pipeline import exactly_once

    topics = [f"columns-{mode}-{number}" for number in (1, 2)]
    for topic in topics:
        admin.create_topic(topic, partitions=2)
    job = Job(cluster.bootstrap, "", str(tmp_path))
    write_input(job, batches=1, rows=4)
    rows = spark.readStream.text(str(job.input)).selectExpr(
        "nullif(value, '0-00000') AS value",
        "value AS key",
        f"if(value < '0-00002', '{topics[0]}', '{topics[1]}') AS topic",
        "int(right(value, 1)) % 2 AS partition",
        "array(struct('h' AS key, binary('x') AS value)) AS headers",
        "timestamp_millis(1700000000000) AS timestamp",
    )
    query = exactly_once(
        rows,
        sink_id=f"columns-{mode}",
        mode=mode,
        bootstrap=cluster.bootstrap,
        checkpoint=job.checkpoint,
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    found: dict[tuple[str, int], Any] = {}
    with BlockingConsumer(cluster.bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign({(t, p): 0 for t in topics for p in (0, 1)})
        for _ in range(50):
            for record in consumer.poll(500):
                found[record.topic, record.partition] = record
            if len(found) == 4:
                break
    rows_seen = {place: (r.key, r.value) for place, r in found.items()}
    assert rows_seen == {
        (topics[0], 0): (b"0-00000", None),
        (topics[0], 1): (b"0-00001", b"0-00001"),
        (topics[1], 0): (b"0-00002", b"0-00002"),
        (topics[1], 1): (b"0-00003", b"0-00003"),
    }
    assert {r.timestamp for r in found.values()} == {1_700_000_000_000}
    assert {tuple(r.headers) for r in found.values()} == {(("h", b"x"),)}


@pytest.mark.parametrize("mode", ["driver", pytest.param("prepared", marks=SLOW)])
def test_query_rows_with_null_keys_and_partitions_keep_their_order(
    spark: "SparkSession", cluster: Cluster, admin: BlockingAdmin, tmp_path: Path, mode: str
) -> None:
    from oncelog.pipeline import exactly_once

    topic = f"order-{mode}"
    admin.create_topic(topic, partitions=1)
    job = Job(cluster.bootstrap, "", str(tmp_path))
    values = write_input(job, batches=1, rows=400)
    rows = spark.readStream.text(str(job.input)).selectExpr(
        "value",
        "if(int(right(value, 5)) % 2 = 0, value, null) AS key",
        "if(int(right(value, 5)) % 3 = 0, 0, null) AS partition",
    )
    query = exactly_once(
        rows,
        sink_id=topic,
        mode=mode,
        bootstrap=cluster.bootstrap,
        topic=topic,
        checkpoint=job.checkpoint,
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    found = asyncio.run(read_to_end(cluster.bootstrap, topic, timeout_s=60))
    assert [(row.value or b"").decode() for row in found] == values
