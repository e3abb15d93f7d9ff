"""A small query into an exactly-once sink, which dies at chosen points.

As a program, with a Job as JSON in its argument, the query is killed with its JVM by SIGKILL. In a
test's own process the same points raise Died instead. A file records each death, so that the query
passes this point after a restart. Text files are the input, one file for each batch. Every line is
a row of the output.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from oncelog.pipeline.sink.protocol import Phase
from oncelog.pipeline.sink.sink import ExactlyOnceSink
from oncelog.pipeline.sink.steps import CommitChildren, Effect, Event, WriteBatch, WriteDecision

POINTS = (
    "mid-write",
    "before the decision",
    "after the decision",
    "mid-roll-forward",
    "before Spark's commit log",
)
SINK = "job"
TASKS = 3


class Died(Exception):
    """Raised instead of a SIGKILL when the query runs in the process of the test."""


@dataclass(frozen=True)
class Job:
    bootstrap: str
    topic: str
    folder: str
    mode: str = "prepared"
    deaths: dict[str, int] = field(default_factory=dict[str, int])  # batches by point
    pauses_at: str = ""  # a point of batch 1 where the process stops itself
    twin: int = -1  # number of a batch with a task that waits until it has a twin
    sink_id: str = SINK
    master: str = "local[2,3]"
    confs: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def input(self) -> Path:
        return Path(self.folder) / "input"

    @property
    def checkpoint(self) -> str:
        return str(Path(self.folder) / "checkpoint")

    def mark(self, point: str) -> Path:
        return Path(self.folder) / point.replace(" ", "-")

    def text(self) -> str:
        return json.dumps(asdict(self))


def write_input(job: Job, batches: int = 3, rows: int = 300) -> list[str]:
    """Write the input files, and return the values that the output must contain once each."""
    job.input.mkdir(parents=True)
    values: list[str] = []
    for batch in range(batches):
        lines = [f"{batch}-{row:05}" for row in range(rows)]
        file = job.input / f"{batch:03}.txt"
        file.write_text("\n".join(lines) + "\n")
        os.utime(file, (time.time() - 100 + batch, time.time() - 100 + batch))
        values += lines
    return values


class MortalSink(ExactlyOnceSink):
    """A sink that calls `die` once at each point in `job.deaths`.

    It pauses its process (SIGSTOP) once at `job.pauses_at`.
    """

    def __init__(self, job: Job, die: Callable[[], None]) -> None:
        super().__init__(job.sink_id, job.bootstrap, job.topic, mode=job.mode)
        self._job, self._die = job, die

    def _reach(self, point: str, batch_id: int) -> None:
        job = self._job
        if job.mark(point).exists():
            return
        if job.deaths.get(point) == batch_id:
            job.mark(point).touch()
            self._die()
        if point == job.pauses_at and batch_id == 1:
            job.mark(point).touch()
            os.kill(os.getpid(), signal.SIGSTOP)

    def perform(self, effect: Effect, rows: Any) -> Event:
        if isinstance(effect, WriteBatch) or self.protocol.phase is Phase.DECIDING:
            assert isinstance(effect, WriteBatch | WriteDecision)
            batch_id = effect.decision.batch_id
            self._reach("before the decision", batch_id)
            event = super().perform(effect, rows)
            self._reach("after the decision", batch_id)
            return event
        if isinstance(effect, CommitChildren) and len(effect.children) > 1:
            assert self.protocol.decision is not None
            batch_id = self.protocol.decision.batch_id
            if self._job.deaths.get("mid-roll-forward") == batch_id:
                super().perform(replace(effect, children=effect.children[:1]), rows)
            self._reach("mid-roll-forward", batch_id)
        return super().perform(effect, rows)

    def __call__(self, frame: Any, batch_id: int) -> None:
        super().__call__(frame, batch_id)
        self._reach("before Spark's commit log", batch_id)


def rows_of(spark: Any, job: Job, *kills: int) -> Any:
    """Return the input as a stream. Two tasks are interrupted in the middle of their rows.

    One of them kills the processes `kills` or its executor and exits. The other one waits for its
    second attempt. The job chooses their batches, and may choose none.
    """
    import psutil

    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(job.input))
    mark, batch_id = str(job.mark("mid-write")), job.deaths.get("mid-write", -1)
    twin, twins = f"{job.twin}-00150", str(job.mark("attempt"))
    fatal, kills_executor = f"{batch_id}-00150", job.master.startswith("local-cluster")

    def wait_for_twin() -> None:
        """Wait until the task has two running attempts, so that both finish."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        open(f"{twins}-{context.attemptNumber()}", "w").close()
        deadline = time.monotonic() + 120
        while not all(os.path.exists(f"{twins}-{attempt}") for attempt in range(2)):
            assert time.monotonic() < deadline, "no twin came"
            time.sleep(0.02)

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            values = batch.column(0).to_pylist()
            if fatal in values and not os.path.exists(mark):
                yield batch.slice(0, values.index(fatal))
                time.sleep(0.5)  # time for the rows written before to be sent
                with open(mark, "w"):
                    pass
                for process in kills or (psutil.Process().parents()[1].pid,) * kills_executor:
                    os.kill(process, signal.SIGKILL)
                os._exit(9)
            if twin in values:
                yield batch.slice(0, values.index(twin))
                wait_for_twin()
                yield batch.slice(values.index(twin))
                continue
            yield batch

    return lines.repartition(TASKS).mapInArrow(pass_on, "value string")


def start(spark: Any, job: Job, sink: ExactlyOnceSink, *kills: int) -> Any:
    return (
        rows_of(spark, job, *kills)
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", job.checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def main(text: str) -> None:
    from oncelog.pipeline import spark_session

    job = Job(**json.loads(text))
    spark = spark_session(
        "job",
        master=job.master,
        sql_shuffle_partitions=2,
        local_dir=f"{job.folder}/local",
        **job.confs,
    )
    java: Any = spark._jvm
    jvm = java.java.lang.ProcessHandle.current().pid()

    def die() -> None:
        for process in (jvm, os.getpid()):
            os.kill(process, signal.SIGKILL)
        time.sleep(60)

    kills = () if not job.master.startswith("local[") else (jvm, os.getpid())
    query = start(spark, job, MortalSink(job, die), *kills)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
