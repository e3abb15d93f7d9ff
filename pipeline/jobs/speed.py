"""The speed of source and sink, compared with Spark's own Kafka connector, in one session.

    python -m oncelog.pipeline.jobs.speed --bootstrap 127.0.0.1:9092 --connector DIR_OF_JARS
        [--command-config tls.properties]

The candidates are oncelog's source, each mode of its sink, the connector, and writes to Spark's
`noop`. They read or write the same records alternately, for several rounds. Their median times are
printed, with the ratio to the connector. A first round does not count, since a JVM compiles
frequent code. Writers are streaming queries of one micro-batch over the same Parquet files. The
figure of the exactly-once sink includes its transactions and their markers, while the connector
writes at least once. Readers are batches into `noop`. Without --connector, only oncelog and `noop`
are measured. --few also measures a query with almost nothing to write.
"""

import argparse
import logging
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...client.blocking import BlockingAdmin
from ...client.security.client_file import read_client_file
from ..command_line import with_prefix
from ..session import spark_session
from ..sink.modes import MODE_NAMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY_BYTES = 8
LIMIT_S = 600
DRIVER_MEMORY = "3g"  # mode "driver" has the whole micro-batch in it, several times
CONNECTOR = "connector"


class Contest:
    """A measurement of all candidates (oncelog's and the connector's) with one record size and one
    login.
    """

    def __init__(
        self,
        spark: "SparkSession",
        settings: argparse.Namespace,
        login: Mapping[str, Any],
        value_bytes: int,
        work: Path,
    ) -> None:
        self._spark, self._settings, self._value_bytes = spark, settings, value_bytes
        self._login, self._options = dict(login), with_prefix(login)
        self._work, self._run = work, 0
        self._input = str(work / "input")
        self._few = str(work / "few")
        self._seconds: dict[str, list[float]] = {}

    def run(self) -> dict[str, float]:
        """Read and write with each candidate. Return the median seconds by candidate."""
        self._make_input(self._input, self._settings.records)
        self._make_input(self._few, self._settings.partitions)
        with BlockingAdmin(self._login) as admin:
            self._admin = admin
            filled = self._new_topic()
            self._write(filled, self._settings.modes[0])
            for _ in range(1 + self._settings.rounds):
                self._round(filled)
        return {name: statistics.median(each[1:]) for name, each in self._seconds.items()}

    def _round(self, filled: str) -> None:
        has_connector = bool(self._settings.connector)
        if has_connector:
            self._time("connector reads", lambda: self._read("kafka", filled))
        self._time("source reads", lambda: self._read("oncelog", filled))
        self._time("noop writes", self._write_nowhere)
        for mode in ((CONNECTOR,) if has_connector else ()) + self._settings.modes:
            for name, place in ((f"{mode} writes", self._input), (f"{mode}, few", self._few)):
                if place == self._few and not self._settings.few:
                    continue
                topic = self._new_topic()
                self._time(name, lambda t=topic, m=mode, p=place: self._write(t, m, p))

    def _time(self, name: str, work: Callable[[], object]) -> None:
        begin = time.perf_counter()
        work()
        self._seconds.setdefault(name, []).append(time.perf_counter() - begin)

    def _make_input(self, place: str, count: int) -> None:
        size = self._value_bytes
        text = f"substring(repeat(md5(string(id)), {size // 32 + 1}), 1, {size})"
        rows = self._spark.range(count, numPartitions=self._settings.partitions)
        rows = rows.selectExpr(
            f"cast(lpad(string(id), {KEY_BYTES}, '0') as binary) key",
            f"cast({text} as binary) value",
        )
        rows.write.mode("overwrite").parquet(place)

    def _new_topic(self) -> str:
        self._run += 1
        name = f"speed-{self._work.name}-{self._run}-{os.getpid()}"  # unlike any other contest's
        self._admin.create_topic(name, partitions=self._settings.partitions)
        return name

    def _write_nowhere(self) -> None:
        self._spark.read.parquet(self._input).write.format("noop").mode("overwrite").save()

    def _write(self, topic: str, mode: str, place: str = "") -> None:
        from ..sink.sink import exactly_once

        place = place or self._input
        rows = self._spark.readStream.schema(self._spark.read.parquet(place).schema).parquet(place)
        checkpoint, trigger = str(self._work / topic), {"availableNow": True}
        if mode == CONNECTOR:
            writer = rows.writeStream.format("kafka").options(**self._options, topic=topic)
            writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
            query = writer.start()
        else:
            login = {n: v for n, v in self._options.items() if n != "kafka.bootstrap.servers"}
            query = exactly_once(
                rows,
                sink_id=topic,
                bootstrap=self._login["bootstrap.servers"],
                topic=topic,
                checkpoint=checkpoint,
                mode=mode,
                trigger=trigger,
                **login,
            )
        assert query.awaitTermination(LIMIT_S)

    def _read(self, source: str, topic: str) -> None:
        reader = self._spark.read.format(source).options(**self._options, subscribe=topic)
        frame = reader.option("kafka.isolation.level", "read_committed").load()
        frame.write.format("noop").mode("overwrite").save()


def logins_of(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the client configurations to measure, or raise ValueError without an address."""
    found: list[dict[str, Any]] = []
    if settings.bootstrap:
        found.append({"bootstrap.servers": settings.bootstrap})
    found += [read_client_file(file)[0] for file in settings.command_config]
    if not found or any(not login.get("bootstrap.servers") for login in found):
        raise ValueError("say which cluster: --bootstrap HOST:PORT, or in each --command-config")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m oncelog.pipeline.jobs.speed", description=__doc__
    )
    parser.add_argument("--bootstrap", help="Measure in plain text at these brokers, HOST:PORT,...")
    parser.add_argument(
        "--command-config",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="Measure with this client.properties, which has bootstrap.servers, and TLS and SASL "
        "by Java's names, as the connector needs. The option may be repeated.",
    )
    parser.add_argument("--connector", help="The folder with the jars of Spark's Kafka connector.")
    parser.add_argument("--records", type=int, default=500_000, help="The number of records.")
    parser.add_argument("--value-bytes", default="100,1000", help="Sizes of values in bytes.")
    parser.add_argument("--partitions", type=int, default=4, help="Partitions of each topic.")
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="The number of rounds that count. One more round comes first.",
    )
    parser.add_argument("--modes", type=modes, default="prepared,transactional,driver")
    parser.add_argument(
        "--few",
        action="store_true",
        help="Also measure queries that write only one row to each partition.",
    )
    parser.add_argument("--master", default=f"local[{os.cpu_count()}]")
    settings = parser.parse_args()
    try:
        logins = logins_of(settings)
    except (OSError, ValueError) as problem:
        parser.error(str(problem))
    confs = {"master": settings.master, "driver_memory": DRIVER_MEMORY}
    if settings.connector:
        jars = sorted(str(jar.resolve()) for jar in Path(settings.connector).glob("*.jar"))
        confs["jars"] = ",".join(jars)
    spark = spark_session("oncelog-speed", **confs)
    spark.sparkContext.setLogLevel("ERROR")
    logging.getLogger("oncelog.sink").setLevel(logging.ERROR)  # each query says its mode
    print(
        f"Spark {spark.version}, Python {platform.python_version()}, {platform.machine()} with "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {settings.records} records of "
        f"{KEY_BYTES} + N bytes, {settings.partitions} partitions, {settings.rounds} rounds",
        flush=True,
    )
    work = Path(tempfile.mkdtemp(prefix="oncelog-speed-"))
    try:
        for login in logins:
            for value_bytes in map(int, settings.value_bytes.split(",")):
                place = work / f"{logins.index(login)}-{value_bytes}"
                medians = Contest(spark, settings, login, value_bytes, place).run()
                print(f"\n{said(login)}, values of {value_bytes} bytes")
                show(settings.records, value_bytes, medians)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        spark.stop()


def modes(text: str) -> tuple[str, ...]:
    """Parse the sink's modes, separated by commas, as the `type` of an argparse option."""
    names = tuple(text.split(","))
    if wrong := [name for name in names if name not in MODE_NAMES]:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r} is none of {', '.join(MODE_NAMES)}")
    return names


def said(login: Mapping[str, Any]) -> str:
    """Return the security protocol and the SASL mechanism of a login as text."""
    protocol = str(login.get("security.protocol", "PLAINTEXT"))
    return f"{protocol} {login.get('sasl.mechanism', '')}".strip()


def show(records: int, value_bytes: int, medians: dict[str, float]) -> None:
    """Print each candidate's median seconds and rates.

    The last column is the speed as a multiple of the connector's.
    """
    print(f"  {'':22} {'seconds':>8} {'few':>6} {'records/s':>11} {'MB/s':>7} {'to connector':>13}")
    for name, seconds in medians.items():
        if name.endswith(", few"):
            continue
        contender, did = name.split(" ")
        few = medians.get(f"{contender}, few")
        rate = records / seconds
        megabytes = rate * (KEY_BYTES + value_bytes) / 1e6
        other = None if contender in (CONNECTOR, "noop") else medians.get(f"{CONNECTOR} {did}")
        ratio = "" if other is None else f"{other / seconds:12.2f}x"
        print(
            f"  {name:22} {seconds:8.2f} {'' if few is None else f'{few:.2f}':>6} {rate:11,.0f} "
            f"{megabytes:7.1f} {ratio:>13}",
            flush=True,
        )


if __name__ == "__main__":
    main()
