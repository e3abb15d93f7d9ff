"""The processes of clients of a run: started, killed, paused, started again.

A worker that ends by itself with an exit code other than 0 has met something that no workload
expects: that is a failure of the run (`broken`), with the worker's log as evidence.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from ..cluster.failure import Failure
from .load.order import STUCK, WorkerOrder

STATE_TIMEOUT_S = 5.0
STOP_TIMEOUT_S = 40.0
LOGS_FOLDER = "workers"


@dataclass(slots=True)
class _Worker:
    order: WorkerOrder
    process: subprocess.Popen[bytes]
    incarnation: int
    is_to_end: bool = False  # by our own hand: nobody has to wonder, or to start it again


class Workers:
    """All workers by name; may be used from several threads."""

    def __init__(self, run: Path) -> None:
        self._logs = run / LOGS_FOLDER
        self._logs.mkdir(parents=True, exist_ok=True)
        self._workers: dict[str, _Worker] = {}
        self._lock = threading.Lock()
        self.errors: Counter[str] = Counter()
        self.clients = self.started = self.stuck = 0
        self.broken: list[str] = []

    @property
    def names(self) -> list[str]:
        return list(self._workers)

    def start(self, name: str, order: WorkerOrder) -> None:
        """Start a worker, or the next incarnation of one."""
        with self._lock:
            before = self._workers.get(name)
            incarnation = 1 if before is None else before.incarnation + 1
            seed = f"{order.seed}/{name}/{incarnation}"
            seeded = replace(order, seed=seed, parent=os.getpid())
            command = [
                sys.executable,
                "-P",
                "-m",
                "oncelog.deploy.chaos.load.worker",
                seeded.to_json(),
            ]
            with (self._logs / f"{name}.log").open("ab") as log:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self._workers[name] = _Worker(order, process, incarnation)
            self.started += 1

    def restart(self, name: str) -> None:
        """The next incarnation of a worker that has ended."""
        self.start(name, self._workers[name].order)

    def kill(self, name: str) -> int:
        """kill -9; the pid, which is gone."""
        worker = self._workers[name]
        worker.is_to_end = True
        worker.process.kill()
        worker.process.wait()
        return worker.process.pid

    def pause(self, name: str) -> int:
        """SIGSTOP; returns the pid when the process is in state T."""
        process = self._workers[name].process
        process.send_signal(signal.SIGSTOP)
        self._await_state(process.pid, is_stopped=True)
        return process.pid

    def resume(self, name: str) -> None:
        process = self._workers[name].process
        process.send_signal(signal.SIGCONT)
        self._await_state(process.pid, is_stopped=False)

    def revive(self) -> None:
        """Start again whoever has ended by itself; an error of theirs is kept."""
        for name, worker in list(self._workers.items()):
            code = worker.process.poll()
            if code is None or worker.is_to_end:
                continue
            if code == STUCK:
                self.stuck += 1
            else:
                self.broken.append(f"{name} ended with exit code {code}; {self._last_words(name)}")
            self.restart(name)

    def remove(self, name: str) -> None:
        """Let a worker end as a program should, and forget it."""
        self._end([name])
        del self._workers[name]

    def stop(self) -> None:
        """SIGTERM to all; they finish what they have begun. Who hangs is killed, and `broken`."""
        self._end(self.names)

    def close(self) -> None:
        """Leave none behind, whatever happened."""
        for worker in self._workers.values():
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait()

    def gather(self) -> None:
        """Count what the clients of all workers met, from what they said at their end."""
        self.errors.clear()
        self.clients = 0
        for log in self._logs.glob("*.log"):
            for line in log.read_text(errors="replace").splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    told = json.loads(line)
                    self.clients += told["clients"]
                    self.errors.update(told["errors"])

    def _end(self, names: list[str]) -> None:
        for name in names:
            self._workers[name].is_to_end = True
            process = self._workers[name].process
            process.send_signal(signal.SIGCONT)
            process.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for name in names:
            process = self._workers[name].process
            try:
                code = process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.broken.append(f"{name} did not end; {self._last_words(name)}")
                process.kill()
                process.wait()
                continue
            if code not in (0, STUCK, -signal.SIGTERM):  # the last one: it had hardly begun
                self.broken.append(f"{name} ended with exit code {code}; {self._last_words(name)}")

    def _last_words(self, name: str) -> str:
        log = self._logs / f"{name}.log"
        lines = log.read_text(errors="replace").strip().splitlines()
        return f"its last words: {lines[-1] if lines else '(none)'}. The whole log: {log}"

    @staticmethod
    def _await_state(pid: int, *, is_stopped: bool) -> None:
        deadline = time.monotonic() + STATE_TIMEOUT_S
        while (psutil.Process(pid).status() == psutil.STATUS_STOPPED) != is_stopped:
            if time.monotonic() > deadline:
                raise Failure(f"Process {pid} did not {'stop' if is_stopped else 'go on'}.")
            time.sleep(0.002)
