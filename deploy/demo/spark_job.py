"""The Spark job as a process of its own: started, heard, struck, started again.

This folder knows nothing of Spark: the job is `python -m oncelog.pipeline.jobs.flights --tell PID`,
and what it tells on stdout is all that is known of it. A job that ends by itself is started again,
as a service manager would; its checkpoint tells it where it was.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from ..cluster.failure import Failure
from ..faults.process_output import Heard

RESTARTS_MAX = 20
STOP_TIMEOUT_S, GONE_TIMEOUT_S = 60.0, 6.0
BUSY_SAMPLE_S = 0.05
WORKER_MODULE = "pyspark.worker"  # what the daemon of the tasks is started with


@dataclass(frozen=True, slots=True)
class ToldBatch:
    """A micro-batch that is committed. begun_at: wall clock, in seconds."""

    query: str
    number: int
    begun_at: float
    rows: int
    ends: dict[int, int]  # partition -> next offset
    heard_at: float = field(default_factory=time.monotonic)


class SparkJobProcess(Heard):
    """See the top of the file. `arguments`: those of the job; `log`: where its words go."""

    def __init__(self, arguments: Sequence[str], log: Path, queries: Sequence[str]) -> None:
        super().__init__()
        self.queries = tuple(queries)
        self.batches: list[ToldBatch] = []
        self.last: dict[str, ToldBatch] = {}  # by query
        self.log = log
        self.is_ready = False  # once it has been
        self.starts = 0
        self.restarts = 0
        self._arguments = list(arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self._is_wanted = False
        self._struck: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the job; it tells when it is ready."""
        with self._changed:
            self._is_wanted = True
            self._spawn()

    def committed_after(self, at: float) -> dict[str, float | None]:
        """When each query first told of a batch that it began after `at`, a time of the wall."""
        found: dict[str, float | None] = dict.fromkeys(self.queries)
        for told in list(self.batches):
            if told.begun_at > at and found[told.query] is None:
                found[told.query] = told.heard_at
        return found

    # --- strokes

    def kill_java(self) -> int:
        """-9 of the driver's JVM, and the job starts again; the pid that is gone."""
        driver = self._driver()
        java = self._java(driver)
        self._is_struck()
        java.kill()
        self._end(driver)  # its Python may wait for an answer for ever
        return java.pid

    def kill_python(self) -> int:
        """-9 of the driver's Python, and the job starts again; the pid that is gone."""
        driver = self._driver()
        java = self._java(driver)
        self._is_struck()
        driver.kill()
        self._end(java)
        return driver.pid

    def kill_a_worker(self) -> int:
        """-9 of the busiest Python process that carries out tasks; its pid."""
        before = {p: p.cpu_times() for p in self._workers()}
        time.sleep(BUSY_SAMPLE_S)
        used: list[tuple[float, int, psutil.Process]] = []
        for process, times in before.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                now = process.cpu_times()
                used.append(
                    (now.user + now.system - times.user - times.system, process.pid, process)
                )
        if not used:
            raise Failure(f"The Spark job has no Python workers. Its log: {self.log}")
        worker = max(used, key=lambda one: one[:2])[2]
        worker.kill()
        return worker.pid

    # --- its end

    def stop(self) -> None:
        """SIGTERM; micro-batches that are under way are given up, and written by the next run."""
        process = self._unwanted()
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise Failure(f"The Spark job does not end. Its log: {self.log}") from None

    def close(self) -> None:
        process = self._unwanted()
        if process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            family = [psutil.Process(process.pid)]
            family += family[0].children(recursive=True)
            for one in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            psutil.wait_procs(family[1:], GONE_TIMEOUT_S)
        process.wait()

    # --- parts

    def _spawn(self) -> None:
        self.starts += 1
        command = [sys.executable, "-P", "-m", "oncelog.pipeline.jobs.flights", *self._arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--tell", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        for work in (self._read, self._watch):
            threading.Thread(target=work, args=(self._process,), daemon=True).start()

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        with process.stdout as lines:  # Java and its workers hold it, too
            for line in lines:
                with contextlib.suppress(ValueError), self._changed:
                    event = json.loads(line)
                    if isinstance(event, list) and event:
                        self._note(*event)

    def _note(self, what: str, *more: Any) -> None:
        if what == "ready":
            self.is_ready = True
        if what == "batch":
            query, number, begun_ms, rows, ends = more
            told = {int(p): int(offset) for p, offset in ends.items()}
            batch = ToldBatch(query, number, begun_ms / 1000, rows, told)
            self.batches.append(batch)
            self.last[query] = batch
        self._changed.notify_all()

    def _watch(self, process: "subprocess.Popen[bytes]") -> None:
        code = process.wait()
        with self._changed:
            if not self._is_wanted or process is not self._process:
                return
            if process is not self._struck:
                self.restarts += 1
            if self.starts > RESTARTS_MAX:
                self.failed = Failure(
                    f"The Spark job has ended {RESTARTS_MAX} times (the last time with exit code "
                    f"{code}). Its log: {self.log}"
                )
                return
            self._spawn()

    def _is_struck(self) -> None:
        with self._changed:
            self._struck = self._process

    def _unwanted(self) -> "subprocess.Popen[bytes] | None":
        with self._changed:
            self._is_wanted = False
            return self._process

    def _driver(self) -> psutil.Process:
        process = self._process
        with contextlib.suppress(psutil.NoSuchProcess):
            if process is not None and process.poll() is None:
                return psutil.Process(process.pid)
        raise Failure(f"The Spark job has ended. Its log: {self.log}")

    def _java(self, driver: psutil.Process) -> psutil.Process:
        for child in driver.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.name() == "java":
                    return child
        raise Failure(f"The Spark job runs no Java. Its log: {self.log}")

    def _workers(self) -> list[psutil.Process]:
        """What pyspark's daemon has forked for tasks; others plan, or ask for offsets."""
        found: list[psutil.Process] = []
        for daemon in self._java(self._driver()).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if WORKER_MODULE in daemon.cmdline():
                    found += daemon.children()
        return found

    def _end(self, process: psutil.Process) -> None:
        """Return when it has ended by itself, or help."""
        deadline = time.monotonic() + GONE_TIMEOUT_S
        with contextlib.suppress(psutil.NoSuchProcess):
            while process.status() != psutil.STATUS_ZOMBIE:  # nobody may ask for its exit code
                if time.monotonic() > deadline:
                    process.kill()
                time.sleep(0.01)
