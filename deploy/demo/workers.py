"""The demo's worker processes: started, watched, struck, started again.

What a worker tells on its stdout is kept from the first line to the last, whatever becomes of it:
the pipe outlives the process. A worker that ends by itself (its producer was fenced, say) is
started again, as a service manager would.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import psutil

from ..cluster.failure import Failure
from ..faults.process_output import Heard
from .worker import WorkerSettings

RESTARTS_MAX = 30  # of one worker
STOP_TIMEOUT_S = 15.0
SEEN_WITHIN_S = 0.05  # so long after a stop the last lines of a worker have been read


@dataclass(slots=True)
class Told:
    """A transaction, by what its worker told of it; nothing is told of one that had no records."""

    name: str
    worker: str
    records: int
    until: dict[int, int]  # partition -> next offset
    state: str = "began"
    why: str = ""  # the error that it was aborted for
    began_at: float = field(default_factory=time.monotonic)
    at: float = 0.0  # of the last word


@dataclass(slots=True)
class _Worker:
    settings: WorkerSettings
    process: subprocess.Popen[bytes] | None = None
    is_wanted: bool = True
    reader: threading.Thread | None = None


class Workers(Heard):
    """All workers; `transactions` is everything that was ever told, in order."""

    def __init__(self, settings: Iterable[WorkerSettings], log_directory: Path) -> None:
        super().__init__()
        self._workers = {each.name: _Worker(each) for each in settings}
        self._log_directory = log_directory
        self.transactions: dict[str, Told] = {}
        self.last: dict[str, Told] = {}  # by worker
        self.restarts = 0

    @property
    def names(self) -> list[str]:
        return list(self._workers)

    def start_all(self) -> None:
        for name in self.names:
            self.start(name)

    def start(self, name: str) -> None:
        """Start a worker that does not run."""
        with self._changed:
            self._workers[name].is_wanted = True
            self._spawn(self._workers[name])

    def _spawn(self, worker: _Worker) -> None:
        name, settings = worker.settings.name, worker.settings
        worker.settings = replace(
            settings, incarnation=settings.incarnation + 1, parent=os.getpid()
        )
        arguments = json.dumps(asdict(worker.settings))
        command = [sys.executable, "-P", "-m", "oncelog.deploy.demo.worker", arguments]
        with self._log(name).open("ab") as log:
            worker.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        worker.reader = threading.Thread(
            target=self._read, args=(worker, worker.process), daemon=True
        )
        worker.reader.start()

    def kill(self, name: str) -> None:
        """kill -9; returns when the process is gone."""
        worker = self._unwanted(name)
        assert worker.process is not None
        worker.process.kill()
        worker.process.wait()
        if worker.reader is not None:
            worker.reader.join()

    def pause(self, name: str) -> None:
        """SIGSTOP; returns when the process is in state T and its last word has been read."""
        process = self._process(name)
        process.suspend()
        while process.status() != psutil.STATUS_STOPPED:
            time.sleep(0.001)
        time.sleep(SEEN_WITHIN_S)

    def resume(self, name: str) -> None:
        self._process(name).resume()

    def committed_after(self, at: float) -> dict[str, float | None]:
        """When each worker first committed a transaction that it began after `at`."""
        found: dict[str, float | None] = dict.fromkeys(self.names)
        for told in list(self.transactions.values()):
            if told.state == "committed" and told.began_at > at and found[told.worker] is None:
                found[told.worker] = told.at
        return found

    def stop(self) -> None:
        """SIGTERM to all; they finish what they have begun."""
        for name in self.names:
            process = self._unwanted(name).process
            if process is not None:
                process.terminate()
        for name, worker in self._workers.items():
            if worker.process is None:
                continue
            try:
                worker.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise Failure(
                    f"{name} does not end. Its log is in {self._log_directory}."
                ) from None
            if worker.reader is not None:
                worker.reader.join()

    def close(self) -> None:
        for name in self.names:
            process = self._unwanted(name).process
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()

    def remove_logs(self) -> None:
        """When nobody needs to read them: the cluster's directory is to be left empty."""
        for name in self.names:
            self._log(name).unlink(missing_ok=True)

    def _log(self, name: str) -> Path:
        return self._log_directory / f"{name}.log"

    def _unwanted(self, name: str) -> _Worker:
        """The worker, which nobody will start again when it ends."""
        with self._changed:
            self._workers[name].is_wanted = False
            return self._workers[name]

    def _process(self, name: str) -> psutil.Process:
        process = self._workers[name].process
        with contextlib.suppress(psutil.NoSuchProcess):
            if process is not None:
                return psutil.Process(process.pid)
        raise Failure(f"{name} has ended. Its log is in {self._log_directory}.")

    def _read(self, worker: _Worker, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                with self._changed:
                    self._note(worker.settings.name, json.loads(line))
                    self._changed.notify_all()
        process.wait()
        with self._changed:
            if worker.is_wanted:
                self._revive(worker, process.returncode)

    def _note(self, worker: str, event: list) -> None:
        what, name, *more = event
        if what == "began":
            until = {int(p): offset for p, offset in more[1].items()}
            told = Told(name, worker, more[0], until)
            self.transactions[name] = self.last[worker] = told
        elif name in self.transactions:  # "ended" names an error, and no transaction
            told = self.transactions[name]
            told.state, told.why = what, more[0] if more else ""
            told.at = time.monotonic()

    def _revive(self, worker: _Worker, code: int) -> None:
        self.restarts += 1
        name = worker.settings.name
        if worker.settings.incarnation > RESTARTS_MAX:
            self.failed = Failure(
                f"{name} has ended {RESTARTS_MAX} times (the last time with exit code {code}). "
                f"Its log is in {self._log_directory}."
            )
            return
        self._spawn(worker)
