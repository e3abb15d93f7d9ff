"""Queries with state, side by side in one process, each into an exactly-once sink of its own.

As a program (its argument: a StatefulJob as JSON) it is killed with its JVM by SIGKILL when all of
its queries have come to the same point of the same batch. One file is one batch of each query;
lines are seconds, and what they bring about depends on state and watermark of the batches before.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from oncelog.pipeline.sink.protocol import Phase
from oncelog.pipeline.sink.sink import ExactlyOnceSink
from oncelog.pipeline.sink.steps import Effect, Event, WriteDecision

# 26 and 38 come again after the batches that are killed; 1 is late by what these have seen.
FILES = ((0, 3, 25), (26, 25), (1, 27, 26), (38, 44), (39, 38, 28), (60, 61), (90,))
AFTER_DECISION, BEFORE_COMMIT_LOG = "after the decision", "before Spark's commit log"
DEATHS = ((BEFORE_COMMIT_LOG, 1), (AFTER_DECISION, 3))
MEET_S = 300


@dataclass(frozen=True)
class StatefulJob:
    """names: of the queries. point, batch: where they die, "" nowhere. confs: of the session."""

    bootstrap: str
    folder: str
    names: list[str]
    point: str = ""
    batch: int = -1
    confs: dict[str, str] = field(default_factory=dict[str, str])
    mode: str = "prepared"

    def input(self, name: str) -> Path:
        return Path(self.folder) / name / "input"

    def checkpoint(self, name: str) -> Path:
        return Path(self.folder) / name / "checkpoint"

    def topic(self, name: str) -> str:
        return f"{Path(self.folder).name}-{name}"

    def text(self) -> str:
        return json.dumps(asdict(self))


def write_files(job: StatefulJob) -> None:
    for name in job.names:
        job.input(name).mkdir(parents=True)
        for number, seconds in enumerate(FILES):
            file = job.input(name) / f"{number:03}.txt"
            file.write_text("".join(f"{second}\n" for second in seconds))
            written_s = time.time() - 100 + number
            os.utime(file, (written_s, written_s))


class MeetingSink(ExactlyOnceSink):
    """Waits for the others at the point where all are to die."""

    def __init__(self, job: StatefulJob, name: str, meet: Callable[[], object]) -> None:
        topic = job.topic(name)
        super().__init__(topic, job.bootstrap, topic, mode=job.mode)
        self._job, self._meet = job, meet

    def _reach(self, point: str, batch_id: int) -> None:
        if (point, batch_id) == (self._job.point, self._job.batch):
            self._meet()

    def perform(self, effect: Effect, rows: Any) -> Event:
        is_decision = self.protocol.phase is Phase.DECIDING
        event = super().perform(effect, rows)
        if is_decision and isinstance(effect, WriteDecision):
            self._reach(AFTER_DECISION, effect.decision.batch_id)
        return event

    def __call__(self, frame: Any, batch_id: int) -> None:
        super().__call__(frame, batch_id)
        self._reach(BEFORE_COMMIT_LOG, batch_id)


# --- the queries


def windows(seconds: Callable[[], Any]) -> Any:
    """How many lines each ten seconds have, told once when they are over."""
    from pyspark.sql import functions as F

    return (
        seconds()
        .groupBy(F.window("at", "10 seconds").alias("window"))
        .count()
        .selectExpr("concat(unix_seconds(window.start), ': ', count) AS value")
    )


def deduplicated(seconds: Callable[[], Any]) -> Any:
    return seconds().dropDuplicates(["at"]).selectExpr("cast(second AS string) AS value")


def joined(seconds: Callable[[], Any]) -> Any:
    """Each line with those of its key in the six seconds behind it, or alone."""
    from pyspark.sql import functions as F

    left = seconds().selectExpr("at AS left_at", "second AS left", "key AS left_key")
    right = seconds().selectExpr("at AS right_at", "second AS right", "key AS right_key")
    in_time = "right_at > left_at AND right_at <= left_at + interval 6 seconds"
    both = left.join(right, F.expr(f"left_key = right_key AND {in_time}"), "leftOuter")
    return both.selectExpr("concat(left, ' ', coalesce(cast(right AS string), 'alone')) AS value")


def counted(seconds: Callable[[], Any]) -> Any:
    """Lines so far by key, counted in Python; and what a key had when it was silent for long."""
    import pandas as pd
    from pyspark.sql.streaming.state import GroupStateTimeout

    def count(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
        (seen,) = state.get if state.exists else (0,)
        if state.hasTimedOut:
            state.remove()
            yield pd.DataFrame({"value": [f"{key[0]} over {seen}"]})
            return
        seen += sum(len(frame) for frame in frames)
        state.update((seen,))
        state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 10_000)
        yield pd.DataFrame({"value": [f"{key[0]} {seen}"]})

    return (
        seconds()
        .groupBy("key")
        .applyInPandasWithState(
            count, "value string", "seen long", "update", GroupStateTimeout.EventTimeTimeout
        )
    )


def transformed(seconds: Callable[[], Any]) -> Any:
    """The same by transformWithState, with a timer."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import (
        StatefulProcessor,
        StatefulProcessorHandle,
    )

    class Counter(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle, self.seen = handle, handle.getValueState("seen", "seen long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            found = self.seen.get()
            seen = sum(1 for _ in rows) + (found[0] if found is not None else 0)
            self.seen.update((seen,))
            for timer in list(self.handle.listTimers()):
                self.handle.deleteTimer(timer)
            self.handle.registerTimer(timerValues.getCurrentWatermarkInMs() + 10_000)
            yield Row(value=f"{key[0]} {seen}")

        def handleExpiredTimer(
            self, key: Any, timerValues: Any, expiredTimerInfo: Any
        ) -> Iterator[Any]:
            found = self.seen.get()
            self.seen.clear()
            yield Row(value=f"{key[0]} over {found and found[0]}")

        def close(self) -> None:
            pass

    return (
        seconds()
        .groupBy("key")
        .transformWithState(Counter(), "value string", "Update", "EventTime")
    )


QUERIES: dict[str, tuple[Callable[[Callable[[], Any]], Any], str]] = {
    "windows": (windows, "append"),
    "deduplicated": (deduplicated, "append"),
    "joined": (joined, "append"),
    "counted": (counted, "update"),
    "transformed": (transformed, "update"),
}


def start(spark: Any, job: StatefulJob, name: str, meet: Callable[[], object]) -> Any:
    def seconds() -> Any:
        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(job.input(name)))
        return lines.selectExpr(
            "cast(value AS long) AS second",
            "cast(value AS long) % 3 AS key",
            "timestamp_seconds(cast(value AS long)) AS at",
        ).withWatermark("at", "0 seconds")

    make, output_mode = QUERIES[name.rpartition("-")[2]]
    return (
        make(seconds)
        .writeStream.foreachBatch(MeetingSink(job, name, meet))
        .option("checkpointLocation", str(job.checkpoint(name)))
        .outputMode(output_mode)
        .trigger(availableNow=True)
        .start()
    )


def main(text: str) -> None:
    from oncelog.pipeline import spark_session

    job = StatefulJob(**json.loads(text))
    spark = spark_session(
        "stateful",
        master="local[2]",
        sql_shuffle_partitions=2,
        local_dir=f"{job.folder}/local",
        driver_extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        **job.confs,
    )
    java: Any = spark._jvm
    jvm = java.java.lang.ProcessHandle.current().pid()

    def die() -> None:
        for process in (jvm, os.getpid()):
            os.kill(process, signal.SIGKILL)

    meeting = threading.Barrier(len(job.names), action=die, timeout=MEET_S)
    queries = [start(spark, job, name, meeting.wait) for name in job.names]
    while any(query.isActive for query in queries):
        spark.streams.awaitAnyTermination()  # raises what a query died of
        spark.streams.resetTerminated()
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
