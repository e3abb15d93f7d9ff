"""Child processes, which are started, killed, paused, and restarted when they end by themselves.

A program reports on its stdout. A report is a line with a JSON list, an event and its arguments.
All other output is written to LOGS/NAME.log (all output, if `takes_reports` is False). Every report
is read, even after the process is gone, because the pipe outlives the process. Each process leads a
session, by which its descendants are found even when their parents are gone.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ..cluster.ends.flag import poll
from ..cluster.ends.guardian import environment_of, guardian, new_run
from ..cluster.ends.leftovers import end_run
from ..cluster.failure import Failure
from ..cluster.node_process import wait_for_state
from ..cluster.private import opener

STATE_TIMEOUT_S, GONE_TIMEOUT_S = 5.0, 6.0
DRAIN_TIMEOUT_S = 1.0  # descendants may hold the pipe for longer
POLL_S = 0.005


@dataclass(slots=True)
class ChildProcess:
    """The running process of a child, which is a program that the supervisor restarts.

    If the process ends while `is_wanted`, the child is started again. `incarnation` is the number
    of starts so far.
    """

    process: subprocess.Popen[bytes]
    incarnation: int
    reader: threading.Thread
    is_wanted: bool = True


class Supervisor:
    """A supervisor of child processes by name. Any thread may call its methods.

    failed: the reason why a child stays down for good, which `wait` and `check` raise. run: the
    children's name for the guardian of this process, which ends all children when this process is
    killed.
    """

    restarts_max: int | None = 30  # of one child
    stop_timeout_s = 15.0
    restart_pause_s = 0.0  # before one that has ended by itself is started again
    takes_reports = True
    umask = 0o077  # their output is readable by their owner only

    def __init__(self, logs: Path) -> None:
        logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._logs = logs
        self.run = new_run()
        self._children: dict[str, ChildProcess] = {}
        # A Condition would stay locked if a signal handler raised in it.
        self._lock = threading.RLock()
        self.failed: Failure | None = None
        self.restarts = 0  # how often a child ended by itself

    # --- what a kind of children is

    def command(self, name: str, incarnation: int) -> list[str]:
        """Return the arguments of Python with which a child is started, from -m on.

        `incarnation` counts the starts of the child.
        """
        raise NotImplementedError

    def argv(self, name: str, incarnation: int) -> list[str]:
        """Return the whole command with which a child is started, including Python."""
        return [sys.executable, "-P", *self.command(name, incarnation)]

    def environment(self, name: str) -> dict[str, str] | None:
        """Return the environment of a child, or None for the environment of this process."""
        return None

    def on_event(self, name: str, event: str, *arguments: Any) -> None:
        """Handle a report from a child.

        Subclasses override this, and are called with the lock held.
        """

    def on_exit(self, name: str, code: int) -> None:
        """Handle the end of a child that was not stopped, before it is started again or given up.

        Subclasses override this, and are called with the lock held.
        """

    # --- what is done to them

    @property
    def names(self) -> list[str]:
        return list(self._children)

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def start(self, name: str) -> None:
        """Start a child that does not run."""
        guardian.keep("run", self.run)
        with self._lock:
            before = self._children.get(name)
            incarnation = 1 if before is None else before.incarnation + 1
            with open(self.log(name), "ab", opener=opener) as log:
                process = subprocess.Popen(
                    self.argv(name, incarnation),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE if self.takes_reports else log,
                    stderr=log,
                    env=environment_of(self.run, self.environment(name)),
                    start_new_session=True,
                    umask=self.umask,
                )
            reader = threading.Thread(target=self._read, args=(name, process), daemon=True)
            reader.start()
            child = self._children[name] = ChildProcess(process, incarnation, reader)
            threading.Thread(target=self._watch, args=(name, child), daemon=True).start()

    def kill(self, name: str) -> int:
        """Send SIGKILL to a child.

        Returns the pid when it is gone. The child stays down until it is started.
        """
        child = self.unwanted(name)
        child.process.kill()
        self._exit_code(child)
        return child.process.pid

    def pause(self, name: str) -> int:
        """Send SIGSTOP. Return the pid when the process is in state T."""
        process = self.running(name)
        process.suspend()
        wait_for_state(process, name, STATE_TIMEOUT_S, is_stopped=True)
        return process.pid

    def resume(self, name: str) -> None:
        process = self.running(name)
        process.resume()
        wait_for_state(process, name, STATE_TIMEOUT_S, is_stopped=False)

    def stop(self, names: Iterable[str] | None = None) -> dict[str, int | None]:
        """Send SIGTERM to the named children, by default all, and let them finish.

        Returns their exit codes, with None for a child that did not end and was killed.
        """
        ending = {
            name: self.unwanted(name) for name in self.names if names is None or name in names
        }
        for child in ending.values():
            self.ask_to_end(child.process)
        deadline, codes = time.monotonic() + self.stop_timeout_s, dict[str, int | None]()
        for name, child in ending.items():
            try:
                codes[name] = self._exit_code(child, max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                codes[name] = None
                self.kill(name)
        return codes

    def ask_to_end(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGCONT)  # a paused process cannot handle signals
        process.terminate()

    def close(self) -> None:
        """Kill all children and their descendants."""
        with contextlib.ExitStack() as each:  # one that does not end keeps none of the others
            each.callback(guardian.forget, "run", self.run)
            each.callback(end_run, self.run)  # those that left their sessions, or were just begun
            for name in self.names:
                each.callback(self._end_for_good, self.unwanted(name).process)

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until the condition holds, or return False at the timeout.

        Raises the reason if a child stays down permanently.
        """

        def holds() -> bool:
            with self._lock:
                if condition():
                    return True
                self.check()
                return False

        return poll(holds, timeout_s, POLL_S)

    def check(self) -> None:
        """Raise the error of a child that stays down permanently, if there is one."""
        if self.failed is not None:
            raise self.failed

    def remove_logs(self) -> None:
        """Remove the logs of all children."""
        for name in self.names:
            self.log(name).unlink(missing_ok=True)

    def running(self, name: str) -> psutil.Process:
        process = self._children[name].process
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.poll() is None:
                return psutil.Process(process.pid)
        raise Failure(f"{name} has ended; {self.last_words(name)}")

    def unwanted(self, name: str) -> ChildProcess:
        """Mark a child as not to be started again when it ends, and return it."""
        with self._lock:
            child = self._children[name]
            child.is_wanted = False
            return child

    def last_words(self, name: str) -> str:
        lines: list[str] = []
        with contextlib.suppress(FileNotFoundError):  # the logs were removed meanwhile
            lines = self.log(name).read_text(errors="replace").strip().splitlines()
        return (
            f"its last output: {lines[-1] if lines else '(none)'}. The whole log: {self.log(name)}"
        )

    # --- threads

    def _read(self, name: str, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is None:
            return
        with process.stdout as lines:
            for line in lines:
                with contextlib.suppress(ValueError):
                    event = json.loads(line)
                    if isinstance(event, list) and event:
                        with self._lock:
                            self.on_event(name, *event)
                        continue
                with open(self.log(name), "ab", opener=opener) as log:
                    log.write(line)

    def _watch(self, name: str, child: ChildProcess) -> None:
        code = self._exit_code(child)
        try:
            if child.is_wanted:
                # its remaining descendants would disturb its successor
                end_session(child.process.pid)
                time.sleep(self.restart_pause_s)
            with self._lock:
                if child.is_wanted:
                    self._restart(name, child, code)
        except (Failure, OSError) as problem:  # else it would be unknown that the child stays away
            with self._lock:
                self.failed = Failure(f"{name} was not started again: {problem}")

    def _restart(self, name: str, child: ChildProcess, code: int) -> None:
        self.restarts += 1
        self.on_exit(name, code)
        if self.restarts_max is None or child.incarnation <= self.restarts_max:
            self.start(name)
        else:
            self.failed = Failure(
                f"{name} has ended {child.incarnation} times (the last time with exit code "
                f"{code}); {self.last_words(name)}"
            )

    @staticmethod
    def _end_for_good(process: subprocess.Popen[bytes]) -> None:
        end_session(process.pid)
        process.wait()

    @staticmethod
    def _exit_code(child: ChildProcess, timeout_s: float | None = None) -> int:
        """Wait until a process has ended and its last report is read. Return its exit code."""
        code = child.process.wait(timeout_s)
        child.reader.join(DRAIN_TIMEOUT_S)
        return code


def signal_session(leader: int, what: signal.Signals) -> list[int]:
    """Send a signal to all processes of a session, in any process group. Return their pids."""
    members = [pid for pid in psutil.pids() if _lives_in(pid, leader)]
    for pid in members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, what)
    return members


def end_session(leader: int) -> None:
    """Send SIGKILL to all processes of a session. Return when none is alive."""
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while members := signal_session(leader, signal.SIGKILL):
        if time.monotonic() > deadline:
            raise Failure(f"Processes {members} do not end.")
        time.sleep(POLL_S)


def _lives_in(pid: int, leader: int) -> bool:
    try:
        return os.getsid(pid) == leader and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False
