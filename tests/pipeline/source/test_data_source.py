"""Test `format("oncelog")` in a real Spark, against a real broker."""

import itertools
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oncelog.client import BlockingAdmin, BlockingProducer
from oncelog.deploy.cluster.local_cluster import Cluster

from ..sink.stateful_job import STARTS_MAX
from ..sink.stateful_queries import SLOW_START

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Markers bear the time of writing and are found by time, too, so records are from a bit later.
FUTURE_MS = time.time_ns() // 1_000_000 + 1_800_000
_numbers = itertools.count()


@pytest.fixture
def topic(admin: BlockingAdmin) -> str:
    name = f"source-{next(_numbers)}"
    admin.create_topic(name, partitions=2)
    return name


def put(cluster: Cluster, topic: str, values: Iterable[int], partition: int = 0) -> None:
    with BlockingProducer(cluster.bootstrap) as producer:
        for value in values:
            producer.send(topic, b"%d" % value, partition=partition)


def put_in_transactions(cluster: Cluster, topic: str) -> None:
    """Write values 1 to 9 in transactions of three to partition 0, and abort the second."""
    with BlockingProducer(cluster.bootstrap, transactional_id=f"id-{topic}") as producer:
        producer.init_transactions()
        for first, commits in ((1, True), (4, False), (7, True)):
            producer.begin_transaction()
            for value in range(first, first + 3):
                producer.send(
                    topic, b"%d" % value, key=b"key", partition=0, timestamp_ms=FUTURE_MS + value
                )
            producer.flush()
            (producer.commit_transaction if commits else producer.abort_transaction)()


def read(spark: "SparkSession", cluster: Cluster, topic: str, **options: object) -> "DataFrame":
    reader = spark.read.format("oncelog").option("kafka.bootstrap.servers", cluster.bootstrap)
    return reader.option("subscribe", topic).options(**options).load()  # type: ignore[arg-type]


def numbers(frame: "DataFrame") -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


class Stream:
    """A streaming query that can run several times, with the rows of each batch."""

    def __init__(
        self, spark: "SparkSession", cluster: Cluster, topic: str, checkpoint: str, **options: Any
    ) -> None:
        self._spark, self._checkpoint = spark, checkpoint
        self.options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic}
        self.options |= {"startingOffsets": "earliest"} | options
        self.batches: list[list[int]] = []

    def run(self) -> list[int]:
        """Run the query to the end of the topic, and return the rows of all its batches."""
        before = len(self.batches)
        frame = self._spark.readStream.format("oncelog").options(**self.options).load()
        writer = (
            frame.writeStream.foreachBatch(lambda each, _: self.batches.append(numbers(each)))
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
        )
        for starts_left in reversed(range(STARTS_MAX)):
            try:
                assert writer.start().awaitTermination(120)
                break
            except Exception as problem:  # the reader's process took over ten seconds to start
                if SLOW_START not in str(problem) or not starts_left:
                    raise
        return sorted(value for batch in self.batches[before:] for value in batch)


def test_batch_query_reads_committed_records_in_the_columns_of_spark(
    spark: "SparkSession", cluster: Cluster, topic: str
) -> None:
    put_in_transactions(cluster, topic)
    frame = read(spark, cluster, topic, includeHeaders="true")
    rows = sorted(frame.collect(), key=lambda row: row.offset)
    assert [int(row.value) for row in rows] == [1, 2, 3, 7, 8, 9]
    assert frame.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    first = rows[0]
    assert (bytes(first.key), first.topic, first.partition, first.offset) == (b"key", topic, 0, 0)
    assert first.timestamp.timestamp() == (FUTURE_MS + 1) / 1000
    assert (first.timestampType, first.headers) == (0, None)
    everything = read(
        spark, cluster, topic, **{"kafka.isolation.level": "read_uncommitted", "minPartitions": "5"}
    )
    assert everything.rdd.getNumPartitions() >= 5
    assert numbers(everything) == list(range(1, 10))


def test_batch_query_reads_from_the_given_start_to_the_given_end_offset_or_time(
    spark: "SparkSession", cluster: Cluster, topic: str
) -> None:
    put_in_transactions(cluster, topic)
    start, end = {topic: {"0": 1, "1": -2}}, {topic: {"0": 3, "1": -1}}
    places = dict(startingOffsets=json.dumps(start), endingOffsets=json.dumps(end))
    assert numbers(read(spark, cluster, topic, **places)) == [2, 3]
    times = read(
        spark,
        cluster,
        "",
        assign=json.dumps({topic: [0]}),
        startingTimestamp=str(FUTURE_MS + 2),
        endingTimestamp=str(FUTURE_MS + 8),
    )
    assert numbers(times) == [2, 3, 7]


def test_source_timestamps_are_instants_in_any_session_timestamp_type(
    spark: "SparkSession", cluster: Cluster, topic: str
) -> None:
    put_in_transactions(cluster, topic)
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        frame = read(spark, cluster, topic)
        assert frame.schema["timestamp"].dataType.simpleString() == "timestamp"
        first = frame.where("offset = 0").collect()[0]
    finally:
        spark.conf.unset("spark.sql.timestampType")
    assert first.timestamp.timestamp() == (FUTURE_MS + 1) / 1000


def test_raw_source_rows_from_brokers_and_files_are_equal_with_markers(
    spark: "SparkSession", cluster: Cluster, topic: str
) -> None:
    put_in_transactions(cluster, topic)
    live = read(spark, cluster, topic, raw="true").drop("replica")
    rows = sorted(live.collect(), key=lambda row: row.offset)
    assert [row.control_type for row in rows if row.is_control] == ["commit", "abort", "commit"]
    data = [row for row in rows if not row.is_control]
    assert [int(row.value) for row in data] == list(range(1, 10))
    assert all(row.producer_id >= 0 and row.is_transactional for row in rows)
    assert [row.sequence for row in data][:3] == [0, 1, 2]
    files = (
        spark.read.format("oncelog")
        .options(raw="true", subscribe=topic, logs=f"1={Path(cluster.data) / 'node-1'}")
        .load()
    )
    assert {row.replica for row in files.select("replica").collect()} == {1}
    assert sorted(files.drop("replica").collect(), key=lambda row: row.offset) == rows


@pytest.mark.in_turn
def test_streaming_query_resumes_at_its_offsets_and_finds_new_partitions(
    spark: "SparkSession", cluster: Cluster, topic: str, admin: BlockingAdmin, checkpoint: str
) -> None:
    stream = Stream(spark, cluster, topic, checkpoint, maxOffsetsPerTrigger="40")
    put(cluster, topic, range(60), 0)
    put(cluster, topic, range(60, 100), 1)
    assert stream.run() == list(range(100))
    assert [len(batch) for batch in stream.batches] == [40, 40, 20]
    admin.create_partitions(topic, 3)
    put(cluster, topic, range(100, 110), 2)
    put(cluster, topic, range(110, 115), 0)
    assert stream.run() == list(range(100, 115))
    assert stream.run() == []


@pytest.mark.spark_slow
def test_streaming_query_start_offset_is_kept_over_a_failed_first_batch(
    spark: "SparkSession", cluster: Cluster, topic: str, checkpoint: str
) -> None:
    put(cluster, topic, range(5))
    stream = Stream(spark, cluster, topic, checkpoint, startingOffsets="latest")

    def fail(frame: "DataFrame", batch_id: int) -> None:
        raise RuntimeError(f"not yet: {batch_id} {numbers(frame)}")

    frame = spark.readStream.format("oncelog").options(**stream.options).load()
    writer = frame.writeStream.foreachBatch(fail).option("checkpointLocation", checkpoint)
    with pytest.raises(Exception, match=r"not yet: 0 \[\]"):  # Spark's first batch may be empty
        writer.start().awaitTermination(120)
    put(cluster, topic, range(5, 10))  # when Spark asks again, latest is past these
    assert stream.run() == [5, 6, 7, 8, 9]


@pytest.mark.in_turn
def test_streaming_query_stops_before_an_open_transaction(
    spark: "SparkSession", cluster: Cluster, topic: str, checkpoint: str
) -> None:
    stream = Stream(spark, cluster, topic, checkpoint)
    put(cluster, topic, range(3))
    with BlockingProducer(cluster.bootstrap, transactional_id=f"open-{topic}") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"100", partition=0)
        producer.flush()
        put(cluster, topic, range(3, 6))
        assert stream.run() == [0, 1, 2]
        producer.commit_transaction()
    assert stream.run() == [3, 4, 5, 100]


@pytest.mark.in_turn
def test_streaming_query_of_a_recreated_topic_stops(
    spark: "SparkSession", cluster: Cluster, topic: str, admin: BlockingAdmin, checkpoint: str
) -> None:
    stream = Stream(spark, cluster, topic, checkpoint, failOnDataLoss="false")
    put(cluster, topic, range(10))
    assert stream.run() == list(range(10))
    admin.delete_topics([topic])
    admin.create_topic(topic, partitions=2)
    put(cluster, topic, range(20))
    with pytest.raises(Exception, match=f"topic {topic} was deleted and made anew"):
        stream.run()
    assert len(stream.batches) == 1


@pytest.mark.in_turn
def test_streaming_query_with_lost_offsets_stops_unless_fail_on_data_loss_is_off(
    spark: "SparkSession", cluster: Cluster, topic: str, admin: BlockingAdmin, checkpoint: str
) -> None:
    stream = Stream(spark, cluster, topic, checkpoint)
    put(cluster, topic, range(10))
    assert stream.run() == list(range(10))
    put(cluster, topic, range(10, 20))
    admin.delete_records(topic, 0, 15)
    with pytest.raises(Exception, match=f"{topic}/0: offsets 10 to 14 are gone, the log begins"):
        stream.run()
    stream.options["failOnDataLoss"] = "false"
    assert stream.run() == list(range(15, 20))


@pytest.mark.spark_slow
def test_writers_without_exactly_once_write_rows_in_batch_and_streaming_queries(
    spark: "SparkSession", cluster: Cluster, topic: str, checkpoint: str
) -> None:
    rows = spark.range(100).selectExpr(
        "cast(id as string) value", "cast(id % 2 as int) partition", f"'{topic}' topic",
        "array(named_struct('key', 'h', 'value', cast('x' as binary))) headers",
        "timestamp_millis(id + 1700000000000) timestamp",
    )  # fmt: skip
    to = {"kafka.bootstrap.servers": cluster.bootstrap}
    rows.write.format("oncelog").mode("append").options(**to).save()
    stream = Stream(spark, cluster, topic, checkpoint)
    frame = spark.readStream.format("oncelog").options(**stream.options).load()
    query = (
        frame.select("value")
        .writeStream.format("oncelog")
        .options(**to, topic=topic)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    found = read(spark, cluster, topic, includeHeaders="true").collect()
    assert sorted(int(row.value) for row in found) == sorted([*range(100)] * 2)
    first = next(row for row in found if row.headers)
    assert (first.headers[0].key, bytes(first.headers[0].value)) == ("h", b"x")
    assert first.timestamp.timestamp() == 1_700_000_000 + int(first.value) / 1000
    assert first.partition == int(first.value) % 2


@pytest.mark.in_turn
def test_source_with_invalid_options_is_refused_with_a_reason(
    spark: "SparkSession", cluster: Cluster
) -> None:
    with pytest.raises(Exception, match="create it before it is read"):
        read(spark, cluster, "nowhere").collect()
    with pytest.raises(Exception, match="there is no option startingoffset; is startingOffsets"):
        read(spark, cluster, "nowhere", startingOffset="latest").collect()
    with pytest.raises(Exception, match="a topic cannot be overwritten"):
        to = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": "nowhere"}
        values = spark.range(1).selectExpr("cast(id as string) value")
        values.write.format("oncelog").mode("overwrite").options(**to).save()
