"""Queries with state in one process, each into its own exactly-once sink.

As a program, with a StatefulJob as JSON in its argument, the job is killed with its JVM by SIGKILL,
or stopped by SIGSTOP. This happens when all queries have reached the same point of the same batch.
Executors die, and tasks get second attempts, when each query has a task in the middle of its rows.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from oncelog.pipeline.failure_words import sentence_of
from oncelog.pipeline.sink import sink as sink_module
from oncelog.pipeline.sink.protocol import Phase
from oncelog.pipeline.sink.sink import ExactlyOnceSink
from oncelog.pipeline.sink.steps import CommitChildren, Effect, Event, WriteDecision

from .job import POINTS
from .output import values_of
from .stateful_queries import CONFS, SLOW_START, kind_of, query_of, write_files

MEET_S = 600.0
STARTS_MAX = 5
MID_WRITE, BEFORE_DECISION, AFTER_DECISION, MID_ROLL_FORWARD, BEFORE_COMMIT_LOG = POINTS


@dataclass(frozen=True)
class StatefulJob:
    """The settings of a process that runs several queries.

    point, batch: where the driver is killed with its JVM, or paused ("" for never).
    executors_die_in: the batch in which all executors are killed while each query's first task is
    in the middle of its rows. twins_in: the batch in which each first task waits for its second
    attempt.
    """

    bootstrap: str
    folder: str
    names: list[str]  # of queries (stateful_queries.py)
    mode: str
    point: str = ""
    batch: int = -1
    pauses: bool = False
    executors_die_in: int = -1
    twins_in: int = -1
    master: str = ""
    confs: dict[str, str] = field(default_factory=dict[str, str])

    def input(self, name: str) -> Path:
        return Path(self.folder) / name / "input"

    def checkpoint(self, name: str) -> Path:
        return Path(self.folder) / name / "checkpoint"

    def topic(self, name: str) -> str:
        return f"{Path(self.folder).name}-{name}"

    def marks(self, what: str) -> list[Path]:
        return list(Path(self.folder).glob(f"mark-{what}-*"))

    def write_files(self) -> None:
        for name in self.names:
            write_files(self.input(name))

    def at(self, point: str, batch: int, *, pauses: bool = False) -> "StatefulJob":
        return replace(self, point=point, batch=batch, pauses=pauses)

    def on(
        self, master: str, confs: dict[str, str], *, twins_in: int, executors_die_in: int
    ) -> "StatefulJob":
        return replace(
            self, master=master, confs=confs, twins_in=twins_in, executors_die_in=executors_die_in
        )

    def rows(self) -> dict[str, list[str]]:
        """Return the rows by query that readers of committed records see."""
        return {name: values_of(self.bootstrap, self.topic(name)) for name in self.names}

    def text(self) -> str:
        return json.dumps(asdict(self))


class BreakableSink(ExactlyOnceSink):
    """A sink that calls a function at each point of the protocol, which may raise or kill."""

    def __init__(self, job: StatefulJob, name: str, reached: Callable[[str, int], object]) -> None:
        super().__init__(job.topic(name), job.bootstrap, job.topic(name), mode=job.mode)
        self._reached = reached

    def perform(self, effect: Effect, rows: Any) -> Event:
        phase, decision = self.protocol.phase, self.protocol.decision
        if phase is Phase.DECIDING and isinstance(effect, WriteDecision):
            self._reached(BEFORE_DECISION, effect.decision.batch_id)
            event = super().perform(effect, rows)
            self._reached(AFTER_DECISION, effect.decision.batch_id)
            return event
        if phase is Phase.COMMITTING and isinstance(effect, CommitChildren):
            assert decision is not None
            half = replace(effect, children=effect.children[: len(effect.children) // 2])
            super().perform(half, rows)
            self._reached(MID_ROLL_FORWARD, decision.batch_id)
        return super().perform(effect, rows)

    def __call__(self, frame: Any, batch_id: int) -> None:
        super().__call__(frame, batch_id)
        self._reached(BEFORE_COMMIT_LOG, batch_id)


def start(spark: Any, job: StatefulJob, name: str, sink: ExactlyOnceSink) -> Any:
    rows, output_mode = query_of(spark, name, job.input(name))
    return (
        rows.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(job.checkpoint(name)))
        .outputMode(output_mode)
        .trigger(availableNow=True)
        .start()
    )


def attempts_of(job: StatefulJob, kills: tuple[int, ...]) -> Callable[[Any, Any], Iterator[Any]]:
    """Return a replacement for the sink's `write_attempt`, which interrupts a task after one row.

    In a batch that the job names, the first task waits there until the first tasks of the other
    queries have come as far. Then it kills the processes `kills`, or its executor. In the batch
    `twins_in` it waits for its own second attempt, and continues.
    """
    folder, count, limit_s = job.folder, len(job.names), MEET_S
    killed_in = job.batch if job.point == MID_WRITE else -1
    executors_die_in, twins_in = job.executors_die_in, job.twins_in
    write = sink_module.write_attempt

    def meet(what: str, name: str, wanted: int) -> bool:
        """Wait until `wanted` processes have created a mark for the point `what`, each with another
        `name`.

        Return False at once if a process has created the mark of this `name` before.
        """
        import glob

        mark = f"{folder}/mark-{what}-{name}"
        if os.path.exists(mark):
            return False
        open(mark, "w").close()
        deadline = time.monotonic() + limit_s
        while len(glob.glob(f"{folder}/mark-{what}-*")) < wanted:
            assert time.monotonic() < deadline, f"{what}: not all have come"
            time.sleep(0.02)
        time.sleep(0.5)  # time for the written rows to be sent
        return True

    def stop(spec: Any) -> None:
        import psutil
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.partitionId() != 0:
            return
        if spec.batch_id == killed_in and meet("driver", spec.sink_id, count):
            for process in kills:
                os.kill(process, signal.SIGKILL)
        if spec.batch_id == executors_die_in and meet("executors", spec.sink_id, count):
            os.kill(psutil.Process().parents()[1].pid, signal.SIGKILL)
        if spec.batch_id == twins_in:
            meet(f"twins-{spec.sink_id}", str(context.attemptNumber()), 2)

    def pass_on(spec: Any, batches: Iterator[Any]) -> Iterator[Any]:
        has_stopped = False
        for batch in batches:
            rest = batch
            if batch.num_rows and not has_stopped:
                yield batch.slice(0, 1)
                stop(spec)
                has_stopped, rest = True, batch.slice(1)
            yield rest
        if not has_stopped:
            stop(spec)

    def write_breakable(spec: Any, batches: Iterator[Any]) -> Iterator[Any]:
        return write(spec, pass_on(spec, batches))

    return write_breakable


def main(text: str) -> int:
    from oncelog.pipeline import spark_session

    job = StatefulJob(**json.loads(text))
    spark = spark_session(
        "stateful",
        master=job.master or f"local[{len(job.names) + 2},3]",
        sql_shuffle_partitions=2,
        local_dir=f"{job.folder}/local",
        log_level="ERROR",
        driver_extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        python_daemon_module="oncelog_test_daemon",
        executorEnv_PYTHONPATH=os.environ.get("PYTHONPATH", ""),  # the place of that module
        executorEnv_OPENBLAS_NUM_THREADS="1",
        **CONFS,
        **job.confs,
    )
    java: Any = spark._jvm
    processes = (java.java.lang.ProcessHandle.current().pid(), os.getpid())

    def end_or_pause() -> None:
        if job.pauses:
            (Path(job.folder) / f"paused-{job.batch}").write_text(json.dumps(processes))
        for process in processes:
            os.kill(process, signal.SIGSTOP if job.pauses else signal.SIGKILL)

    meeting = threading.Barrier(len(job.names), action=end_or_pause, timeout=MEET_S)
    begun: dict[str, threading.Event] = {name: threading.Event() for name in job.names}

    def sink_of(name: str) -> BreakableSink:
        def reached(point: str, batch: int) -> None:
            begun[name].set()
            if (point, batch) == (job.point, job.batch):
                meeting.wait()

        return BreakableSink(job, name, reached)

    sink_module.write_attempt = attempts_of(job, processes)
    queries: dict[str, Any] = {}
    for name in job.names:
        for _ in range(STARTS_MAX):
            queries[name] = query = start(spark, job, name, sink_of(name))
            # Alone, since its first process has to be quick.
            while kind_of(name) == "transformed" and not begun[name].wait(0.1) and query.isActive:
                pass
            if query.isActive or SLOW_START not in str(query.exception()):
                break
    has_failed = False
    for name, query in queries.items():
        try:
            query.awaitTermination()
        except Exception as problem:
            print(f"{name} has ended: {sentence_of(problem)}", flush=True)
            has_failed = True
    spark.stop()
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
