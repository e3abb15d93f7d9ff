"""How fast source and sink are, beside Spark's own Kafka connector, in one session.

    python -m oncelog.pipeline.jobs.speed --bootstrap 127.0.0.1:9092 --connector DIR_OF_JARS

Each contender reads or writes the same records in turn, for several rounds; the medians count, and
the ratio says what our side costs. Writers are streaming queries of one micro-batch over the same
Parquet files, so the figure of the exactly-once sink has its transactions, its decision and its
markers in it; the connector writes at least once. Readers are batches into Spark's `noop`. Without
--connector only ours are measured.
"""

import argparse
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ...client.blocking import BlockingAdmin
from ..session import spark_session
from ..sink.modes import MODE_NAMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY_BYTES = 8
READ_LIMIT_S = 600


class Contest:
    """One size of records, read and written by all contenders."""

    def __init__(
        self, spark: "SparkSession", settings: argparse.Namespace, value_bytes: int, work: Path
    ) -> None:
        self._spark, self._settings, self._value_bytes = spark, settings, value_bytes
        self._work, self._run = work / f"{value_bytes}", 0
        self._input = str(self._work / "input")
        self._seconds: dict[str, list[float]] = {}

    def run(self) -> dict[str, float]:
        """Median seconds by contender."""
        self._make_input()
        with BlockingAdmin(self._settings.bootstrap) as admin:
            self._admin = admin
            filled = self._new_topic()
            self._write_by_ours(filled)  # also a warm-up of everything
            self._read("oncelog", filled)
            for _ in range(self._settings.rounds):
                if self._settings.connector:
                    self._time("connector reads", lambda: self._read("kafka", filled))
                self._time("source reads", lambda: self._read("oncelog", filled))
                self._time("noop writes", self._write_nowhere)
                if self._settings.connector:
                    topic = self._new_topic()
                    self._time("connector writes", lambda t=topic: self._write_by_connector(t))
                topic = self._new_topic()
                self._time("exactly-once writes", lambda t=topic: self._write_by_ours(t))
        return {name: statistics.median(each) for name, each in self._seconds.items()}

    def _time(self, name: str, work: Callable[[], object]) -> None:
        begin = time.perf_counter()
        work()
        self._seconds.setdefault(name, []).append(time.perf_counter() - begin)

    def _make_input(self) -> None:
        size = self._value_bytes
        text = f"substring(repeat(md5(string(id)), {size // 32 + 1}), 1, {size})"
        rows = self._spark.range(self._settings.records, numPartitions=self._settings.partitions)
        rows = rows.selectExpr(
            f"cast(lpad(string(id), {KEY_BYTES}, '0') as binary) key",
            f"cast({text} as binary) value",
        )
        rows.write.mode("overwrite").parquet(self._input)

    def _new_topic(self) -> str:
        self._run += 1
        name = f"speed-{self._value_bytes}-{self._run}-{os.getpid()}"
        self._admin.create_topic(name, partitions=self._settings.partitions)
        return name

    def _stream(self) -> "DataFrame":
        schema = self._spark.read.parquet(self._input).schema
        return self._spark.readStream.schema(schema).parquet(self._input)

    def _write_nowhere(self) -> None:
        self._spark.read.parquet(self._input).write.format("noop").mode("overwrite").save()

    def _write_by_connector(self, topic: str) -> None:
        query = (
            self._stream()
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", self._settings.bootstrap)
            .option("topic", topic)
            .option("checkpointLocation", str(self._work / topic))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(READ_LIMIT_S)

    def _write_by_ours(self, topic: str) -> None:
        from ..sink.sink import exactly_once

        query = exactly_once(
            self._stream(),
            sink_id=topic,
            bootstrap=self._settings.bootstrap,
            topic=topic,
            checkpoint=str(self._work / topic),
            mode=self._settings.mode,
            trigger={"availableNow": True},
        )
        assert query.awaitTermination(READ_LIMIT_S)

    def _read(self, source: str, topic: str) -> None:
        frame = (
            self._spark.read.format(source)
            .option("kafka.bootstrap.servers", self._settings.bootstrap)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", topic)
            .load()
        )
        frame.write.format("noop").mode("overwrite").save()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m oncelog.pipeline.jobs.speed", description=__doc__
    )
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--connector", help="a folder with the jars of Spark's Kafka connector")
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--value-bytes", default="100,1000")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mode", default="prepared", choices=MODE_NAMES)
    parser.add_argument("--master", default=f"local[{os.cpu_count()}]")
    settings = parser.parse_args()
    confs = {"master": settings.master}
    if settings.connector:
        jars = sorted(str(jar.resolve()) for jar in Path(settings.connector).glob("*.jar"))
        confs["jars"] = ",".join(jars)
    spark = spark_session("oncelog-speed", **confs)
    spark.sparkContext.setLogLevel("ERROR")
    print(
        f"Spark {spark.version}, Python {platform.python_version()}, {platform.machine()} with "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {settings.records} records of "
        f"{KEY_BYTES} + N bytes, {settings.partitions} partitions, {settings.rounds} rounds"
    )
    work = Path(tempfile.mkdtemp(prefix="oncelog-speed-"))
    try:
        for value_bytes in map(int, settings.value_bytes.split(",")):
            medians = Contest(spark, settings, value_bytes, work).run()
            show(settings.records, value_bytes, medians)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        spark.stop()


def show(records: int, value_bytes: int, medians: dict[str, float]) -> None:
    """A line for each contender, beside the connector's."""
    print(f"\nvalues of {value_bytes} bytes")
    print(f"  {'':22} {'seconds':>8} {'records/s':>11} {'MB/s':>7} {'to connector':>13}")
    beside = {"source reads": "connector reads", "exactly-once writes": "connector writes"}
    for name, seconds in medians.items():
        rate = records / seconds
        megabytes = rate * (KEY_BYTES + value_bytes) / 1e6
        other = medians.get(beside.get(name, ""))
        ratio = "" if other is None else f"{other / seconds:12.2f}x"
        print(f"  {name:22} {seconds:8.2f} {rate:11,.0f} {megabytes:7.1f} {ratio:>13}")


if __name__ == "__main__":
    main()
