"""The flights as a Spark job that consumes, transforms and produces exactly once.

    python -m oncelog.pipeline.jobs.flights --bootstrap HOST:PORT --checkpoint DIR

Two queries read the topic of flights with read_committed. One writes each flight enriched, the
other keeps sums of delays by origin, carrier and window (flight_frames.py). Each query writes
through an exactly-once sink with its own name. Therefore the job may be killed at any moment and
started again with the same checkpoint, and every flight counts once.

The same file runs on this machine, on a Spark cluster (`--master spark://HOST:7077`, or
spark-submit) and against Apache Kafka (`--bootstrap`; `--mode driver` if prepared transactions are
not enabled; `--command-config` for TLS and SASL). With `--tell PID` it reports progress on stdout,
a line of JSON each:

    ["ready"]                                                   the queries run
    ["batch", QUERY, ID, BEGUN_MS, ROWS, {PARTITION: OFFSET}]   a batch is committed, up to OFFSET
    ["failed", QUERY, SENTENCE]                                 a query failed; the exit code is 3

BEGUN_MS is the time when the trigger fired, since 1970. After SIGTERM, running micro-batches are
abandoned, and the next run writes them. If Spark does not stop within STOP_S_MAX, the job and its
JVM are killed.
"""

import argparse
import csv
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...client.settings import SECURITY_NAMES
from .. import exactly_once, spark_session
from ..command_line import (
    add_login_options,
    add_pairs,
    add_spark_options,
    login_of,
    spark_confs,
    with_prefix,
)
from ..failure_words import sentence_of
from ..sink.modes import MODE_NAMES
from .flight_frames import WINDOWS, delay_sums, enrich, parse, sum_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FAILED = 3  # exit code that lets the caller start the job again
POLL_S = 0.05
STOP_S_MAX = 30.0  # for queries and Spark together; the caller must wait longer


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m oncelog.pipeline.jobs.flights", description=(__doc__ or "").split("\n\n")[0]
    )
    add = parser.add_argument
    add_login_options(parser)
    add("--checkpoint", required=True, help="A directory or URL, the same at each start.")
    add_spark_options(parser)
    add("--source", default="flights", help="The topic to read.")
    add("--enriched", default="enriched-flights", help="The topic to write flights to, or ''.")
    add("--sums", default="delays", help="The topic to write delay sums to, or ''.")
    add("--window", default="month", choices=WINDOWS, help="The period that a sum covers.")
    add(
        "--late-by",
        help="Drop windows that began this long before the newest one, e.g. '40 days'. The default "
        "is to keep all windows.",
    )
    add("--airlines", type=Path, help="A CSV file with the columns carrier and name.")
    add("--mode", default="prepared", choices=MODE_NAMES, help="The mode of the sinks.")
    add("--sink-id", default="flights", help="The beginning of the ids of both sinks.")
    add("--max-offsets", type=int, help="The largest number of offsets in a micro-batch.")
    add("--available-now", action="store_true", help="End after all records up to now.")
    add(
        "--tell",
        type=int,
        metavar="PID",
        help="Report progress on stdout, and end when this parent process ends.",
    )
    for what in ("source", "sink"):
        add_pairs(parser, f"--{what}-option", f"An option of the {what}. It may be repeated.")
    chosen = parser.parse_args(given)
    try:
        chosen.login = login_of(chosen)
    except ValueError as problem:
        parser.error(str(problem))
    return chosen


def airlines(file: Path | None) -> dict[str, str]:
    """Return the airlines' names by carrier code, or {} without a file."""
    if file is None:
        return {}
    with file.open(newline="") as lines:
        return {row["carrier"]: row["name"] for row in csv.DictReader(lines)}


def source(spark: "SparkSession", options: argparse.Namespace) -> "DataFrame":
    """Return the topic of flights as a streaming DataFrame."""
    reader = spark.readStream.format("oncelog").options(
        **with_prefix(options.login),
        subscribe=options.source,
        startingOffsets="earliest",
        **dict(options.source_option),
    )
    if options.max_offsets is not None:
        reader = reader.option("maxOffsetsPerTrigger", options.max_offsets)
    return reader.load()


def of_sinks(login: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the security settings of a login, because sinks set the others themselves."""
    return {name: value for name, value in login.items() if name in SECURITY_NAMES}


def start(spark: "SparkSession", options: argparse.Namespace) -> dict[str, "StreamingQuery"]:
    flights = parse(source(spark, options))
    login = of_sinks(options.login)
    made: dict[str, tuple[DataFrame, str, str]] = {}
    if options.enriched:
        frame = enrich(flights, airlines(options.airlines), options.sink_id)
        made["enriched"] = (frame, options.enriched, "append")
    if options.sums:
        frame = sum_records(delay_sums(flights, options.window, options.late_by))
        made["sums"] = (frame, options.sums, "update")
    return {
        name: exactly_once(
            frame,
            sink_id=f"{options.sink_id}-{name}",
            bootstrap=options.login["bootstrap.servers"],
            topic=topic,
            checkpoint=f"{options.checkpoint.rstrip('/')}/{name}",
            mode=options.mode,
            output_mode=output_mode,
            trigger={"availableNow": True} if options.available_now else None,
            query_name=name,
            **login,
            **dict(options.sink_option),
        )
        for name, (frame, topic, output_mode) in made.items()
    }


class ProgressReporter:
    """A watcher of queries that reports each micro-batch once."""

    def __init__(self, queries: Mapping[str, "StreamingQuery"], say: Callable[..., None]) -> None:
        self._queries, self._say = queries, say
        self._reported = dict.fromkeys(queries, -1)

    def look(self) -> bool:
        """Report the last micro-batch of each query if it is new.

        Returns False, and reports the error, if a query has failed.
        """
        for name, query in self._queries.items():
            if progress := query.lastProgress:  # checked far more often than a batch takes
                self._batch(name, progress)
            problem = query.exception()
            if problem is not None:
                self._say("failed", name, sentence_of(problem))
                return False
        return True

    def _batch(self, name: str, progress: Any) -> None:
        number, rows, where = progress["batchId"], progress["numInputRows"], progress["sources"][0]
        ends = offsets_of(where["endOffset"])
        is_idle = not rows and ends == offsets_of(where["startOffset"])
        if number <= self._reported[name] or is_idle:
            return
        self._reported[name] = number
        begun = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00"))
        self._say("batch", name, number, int(begun.timestamp() * 1000), rows, ends)


def offsets_of(text: str | None) -> dict[str, int]:
    """Return the offsets by partition from the source's offset JSON. The job reads one topic."""
    found = json.loads(text) if text else None
    topics = found["topics"] if found else {}
    return {p: offset for entry in topics.values() for p, offset in entry["offsets"].items()}


def main() -> int:
    """Run until SIGTERM, until the parent process exits, until all records are read, or until a
    query fails.

    --tell names the parent process. With --available-now the job ends after all records are read.
    """
    options = arguments()

    def say(*event: Any) -> None:
        if options.tell:
            line = json.dumps(event).encode() + b"\n"
            os.write(1, line)  # flushed immediately, since the process may be killed at any moment
        elif event[0] == "failed":
            print(*event[1:], sep=": ", file=sys.stderr)

    is_over: list[int] = []
    spark = spark_session("flights", **spark_confs(options))
    signal.signal(signal.SIGTERM, lambda *_: is_over.append(1))
    queries = start(spark, options)
    say("ready")
    reporter = ProgressReporter(queries, say)
    while reporter.look():
        is_orphan = options.tell not in (None, os.getppid())
        if is_over or is_orphan or not any(query.isActive for query in queries.values()):
            stop(spark, queries)
            return 0
        time.sleep(POLL_S)
    stop(spark, {})
    return FAILED


def stop(spark: "SparkSession", queries: Mapping[str, "StreamingQuery"]) -> None:
    """Stop the queries and Spark, and kill both processes if that takes longer than STOP_S_MAX.

    No row is lost or doubled by the kill, because the next run resumes the queries.
    """
    java = getattr(spark.sparkContext._gateway, "proc", None)  # None under spark-submit

    def end_hard() -> None:
        if java is not None:
            java.kill()
        os._exit(FAILED)

    killer = threading.Timer(STOP_S_MAX, end_hard)
    killer.daemon = True
    killer.start()
    for query in queries.values():
        query.stop()
    spark.stop()
    killer.cancel()


if __name__ == "__main__":
    sys.exit(main())
