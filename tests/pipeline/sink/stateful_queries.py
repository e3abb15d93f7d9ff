"""Queries with state, with an output that shows a lost, doubled, or wrong state of a batch.

One file is one batch. Its lines are seconds, and the effect of a line depends on the state and
watermark of the batches before. Worker processes get nested functions, which are sent by value, so
that no worker must import this file.
"""

import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BATCHES, KEYS = 7, 5
STORE = "spark.sql.streaming.stateStore"
PROVIDERS = "org.apache.spark.sql.execution.streaming.state"
FORMATS = {"files": ("HDFSBacked", 1), "rocksdb-1": ("RocksDB", 1), "rocksdb-2": ("RocksDB", 2)}
# transformWithState begins with a process that has ten seconds to connect, on any machine.
SLOW_START = "Python worker failed to connect back"
# A batch is a file: the index of the broken one must not depend on batches without rows.
CONFS = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}


def seconds_of(batch: int) -> list[int]:
    """Return the lines of a batch, which are twelve new seconds and some repeated ones.

    In some batches the seconds of one key are missing. The last two seconds of the previous batch
    come again, which the state must detect. Every batch has second 1, which is late in all but the
    first.
    """
    is_silent = batch in (2, 3, 5, 6)
    new = [s for s in range(12 * batch, 12 * batch + 12) if s % KEYS < KEYS - is_silent]
    return [*new, *range(12 * batch - 2, 12 * batch), 1] if batch else [*new, 1]


def write_files(folder: Path) -> None:
    folder.mkdir(parents=True)
    for batch in range(BATCHES):
        file = folder / f"{batch:03}.txt"
        file.write_text("".join(f"{second}\n" for second in seconds_of(batch)))
        written_s = time.time() - 100 + batch
        os.utime(file, (written_s, written_s))


Seconds = Callable[[], Any]  # a stream of the lines: second, key, at


def windows(seconds: Seconds) -> Any:
    """Return the number of lines of each key in each window of ten seconds, once it has closed."""
    from pyspark.sql import functions as F

    return (
        seconds()
        .groupBy(F.window("at", "10 seconds").alias("window"), "key")
        .count()
        .selectExpr("concat(unix_seconds(window.start), ' ', key, ': ', count) AS value")
    )


def deduplicated(seconds: Seconds) -> Any:
    return seconds().dropDuplicates(["at"]).selectExpr("cast(second AS string) AS value")


def joined(seconds: Seconds) -> Any:
    """Return each line with the lines of the same key in the next six seconds, or alone."""
    from pyspark.sql import functions as F

    left = seconds().selectExpr("at AS left_at", "second AS left", "key AS left_key")
    right = seconds().selectExpr("at AS right_at", "second AS right", "key AS right_key")
    in_time = "right_at > left_at AND right_at <= left_at + interval 6 seconds"
    both = left.join(right, F.expr(f"left_key = right_key AND {in_time}"), "leftOuter")
    return both.selectExpr("concat(left, ' ', coalesce(cast(right AS string), 'alone')) AS value")


def counted(seconds: Seconds) -> Any:
    """Return the running count of lines for each key. After 10 s without a line, return the key's
    total.

    The state is handled in Python, by applyInPandasWithState.
    """
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


def transformed(seconds: Seconds) -> Any:
    """Return the counts that `counted` returns, by transformWithState with a timer."""
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


QUERIES: dict[str, tuple[Callable[[Seconds], Any], str]] = {
    "transformed": (transformed, "update"),
    "windows": (windows, "append"),
    "deduplicated": (deduplicated, "append"),
    "joined": (joined, "append"),
    "counted": (counted, "update"),
}


def queries_in(*state_formats: str) -> list[str]:
    """Return the names FORMAT-KIND of all queries that can run with these formats of the state.

    transformWithState needs RocksDB and protobuf.
    """
    has_protobuf = importlib.util.find_spec("google.protobuf") is not None
    names = [f"{state_format}-{kind}" for kind in QUERIES for state_format in state_formats]
    return [
        name
        for name in names
        if kind_of(name) != "transformed" or (has_protobuf and not name.startswith("files"))
    ]


def kind_of(name: str) -> str:
    return name.rpartition("-")[2]


def query_of(spark: Any, name: str, folder: Path) -> tuple[Any, str]:
    """Return the rows of the query with this name, and its output mode.

    Start the query before the next query is created, since the session stores the format of its
    state.
    """

    def seconds() -> Any:
        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
        return lines.selectExpr(
            "cast(value AS long) AS second",
            f"cast(value AS long) % {KEYS} AS key",
            "timestamp_seconds(cast(value AS long)) AS at",
        ).withWatermark("at", "0 seconds")

    provider, version = FORMATS[name.rpartition("-")[0]]
    spark.conf.set(f"{STORE}.providerClass", f"{PROVIDERS}.{provider}StateStoreProvider")
    spark.conf.set(f"{STORE}.checkpointFormatVersion", str(version))
    make, output_mode = QUERIES[kind_of(name)]
    return make(seconds), output_mode
