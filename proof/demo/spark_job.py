"""Runs the Spark job as a process, reads its reports, and kills its processes.

This folder does not import Spark. The job is `python -m oncelog.pipeline.jobs.flights --tell PID`,
and only its reports are known. After a restart the job continues from its checkpoint.
"""

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from ...deploy.cluster.failure import Failure
from ...deploy.faults.supervisor import GONE_TIMEOUT_S, POLL_S, Supervisor, end_session

JOB = "spark-job"
BUSY_SAMPLE_S = 0.05
WORKER_MODULE = "pyspark.worker"  # what the daemon of the tasks is started with


@dataclass(frozen=True, slots=True)
class ReportedBatch:
    """A micro-batch that the job reported as committed. `begun_at` is wall clock, in seconds."""

    query: str
    number: int
    begun_at: float
    rows: int
    ends: dict[int, int]  # partition -> next offset
    reported_at: float = field(default_factory=time.monotonic)


class SparkJobProcess(Supervisor):
    """The process of the Spark job's driver. `arguments` are the job's arguments."""

    restarts_max = 20
    stop_timeout_s = 60.0

    def __init__(self, arguments: Sequence[str], logs: Path, queries: Sequence[str]) -> None:
        super().__init__(logs)
        self.queries = tuple(queries)
        self.batches: list[ReportedBatch] = []
        self.last: dict[str, ReportedBatch] = {}  # by query
        self.is_ready = False  # once it has been
        self.starts = 0
        self.arguments = list(arguments)

    def command(self, name: str, incarnation: int) -> list[str]:
        self.starts = incarnation
        tell = ["--tell", str(os.getpid())]
        return ["-m", "oncelog.pipeline.jobs.flights", *self.arguments, *tell]

    def on_event(self, name: str, event: str, *arguments: Any) -> None:
        self.is_ready |= event == "ready"
        if event == "batch":
            query, number, begun_ms, rows, ends = arguments
            offsets = {int(p): int(offset) for p, offset in ends.items()}
            batch = ReportedBatch(query, number, begun_ms / 1000, rows, offsets)
            self.batches.append(batch)
            self.last[query] = batch

    def committed_after(self, at: float) -> dict[str, float | None]:
        """Return when each query first reported a batch that began after `at` (wall clock)."""
        found: dict[str, float | None] = dict.fromkeys(self.queries)
        for batch in list(self.batches):
            if batch.begun_at > at and found[batch.query] is None:
                found[batch.query] = batch.reported_at
        return found

    def kill_java(self) -> int:
        """Send SIGKILL to the driver's JVM, start the job again, and return the ended pid."""
        driver, java = self.driver, self.java
        self.unwanted(JOB)
        java.kill()
        self._end(driver)  # its Python may wait for an answer for ever
        end_session(driver.pid)
        self.start(JOB)
        return java.pid

    def kill_python(self) -> int:
        """Send SIGKILL to the driver's Python, start the job again, and return the ended pid."""
        java, pid = self.java, self.unwanted(JOB).process.pid
        self.driver.kill()
        self.start(JOB)
        self._end(java)
        end_session(pid)
        return pid

    def kill_a_worker(self) -> int:
        """Send SIGKILL to the busiest Python process that executes tasks, and return its pid."""
        before = {p: p.cpu_times() for p in self.task_workers()}
        time.sleep(BUSY_SAMPLE_S)
        used: list[tuple[float, int, psutil.Process]] = []
        for process, times in before.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                now = process.cpu_times()
                used.append(
                    (now.user + now.system - times.user - times.system, process.pid, process)
                )
        if not used:
            raise self._missing("has no Python workers")
        worker = max(used, key=lambda one: one[:2])[2]
        worker.kill()
        return worker.pid

    @property
    def driver(self) -> psutil.Process:
        return self.running(JOB)

    @property
    def java(self) -> psutil.Process:
        for child in self.driver.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.name() == "java":
                    return child
        raise self._missing("runs no Java")

    def task_workers(self) -> list[psutil.Process]:
        """Return the processes that pyspark's daemon forked for tasks.

        Python processes that plan a batch or request offsets are left out.
        """
        found: list[psutil.Process] = []
        for daemon in self.java.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if WORKER_MODULE in daemon.cmdline():
                    found += daemon.children()
        return found

    def _missing(self, what: str) -> Failure:
        return Failure(f"The Spark job {what}. Its log: {self.log(JOB)}")

    def _end(self, process: psutil.Process) -> None:
        """Wait until the process has ended by itself. If it does not, kill it."""
        deadline = time.monotonic() + GONE_TIMEOUT_S
        with contextlib.suppress(psutil.NoSuchProcess):
            while process.status() != psutil.STATUS_ZOMBIE:  # the supervisor asks for its exit code
                if time.monotonic() > deadline:
                    process.kill()
                time.sleep(POLL_S)
