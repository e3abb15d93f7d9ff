"""Runs the instances of the tested application as supervised processes, in any language.

Each instance gets `KAFKA_BOOTSTRAP_SERVERS`, `ONCELOG_IN`, `ONCELOG_OUT` and `ONCELOG_INSTANCE` in
its environment, and {bootstrap}, {in}, {out}, {instance} in its arguments. On a secured cluster
`ONCELOG_CLIENT_CONFIG` and {client} name a file with librdkafka's settings, and
`ONCELOG_JAVA_CONFIG` and {java} a file for Java's client. An instance that ends by itself is
restarted, as its supervisor in production would do. A fault affects all processes of an instance,
including those started by a shell or a launcher.
"""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ...deploy.cluster.ends.interrupts import uninterrupted
from ...deploy.cluster.failure import Failure
from ...deploy.cluster.node_process import wait_for_state
from ...deploy.faults.supervisor import STATE_TIMEOUT_S, Supervisor, end_session, signal_session
from .cluster_access import ClientFiles
from .judgement import last_words

CLIENT_FILES = {"ONCELOG_CLIENT_CONFIG": "client", "ONCELOG_JAVA_CONFIG": "java"}
WORDS_BYTES_MAX = 20_000
KEEP = "Keep its whole output: --keep DIR."


class Application(Supervisor):
    """The supervised processes of the application's instances.

    address_for: the bootstrap line of an instance. is_kept: the logs are kept after the run, so
    messages may name them. client_files: see `ClusterAccess`.
    """

    takes_reports = False
    umask = -1  # its own
    restart_pause_s = 0.5
    restarts_max = None
    stop_timeout_s = 10.0

    def __init__(
        self,
        command: Sequence[str],
        logs: Path,
        address_for: Callable[[str], str],
        inputs: Sequence[str],
        outputs: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        is_kept: bool = True,
        client_files: ClientFiles | None = None,
    ) -> None:
        super().__init__(logs)
        require_program(command)
        self._command, self._address_for = list(command), address_for
        self._inputs, self._outputs = ",".join(inputs), ",".join(outputs)
        self._more, self._is_kept = dict(environment or {}), is_kept
        self._client_files = client_files
        self._known_as: dict[str, str] = {}  # child -> what ONCELOG_INSTANCE says
        self._awake_since_s: dict[str, float] = {}  # started, or woken
        self._paused = set[str]()
        self._removed = set[str]()
        self._numbers = threading.Lock()
        self._is_closed = False
        self.exits: list[tuple[float, str, int]] = []  # of instances that ended by themselves

    # --- what they are

    def argv(self, name: str, incarnation: int) -> list[str]:
        values = self._values(name)
        return [_filled(part, values) for part in self._command]

    def environment(self, name: str) -> dict[str, str]:
        values = self._values(name)
        return {
            **os.environ,
            "PYTHONUNBUFFERED": "1",  # output in a buffer is lost in a kill
            "KAFKA_BOOTSTRAP_SERVERS": values["bootstrap"],
            "ONCELOG_IN": values["in"],
            "ONCELOG_OUT": values["out"],
            "ONCELOG_INSTANCE": values["instance"],
            **{name: values[key] for name, key in CLIENT_FILES.items() if key in values},
            **self._more,
        }

    def on_exit(self, name: str, code: int) -> None:
        self.exits.append((time.monotonic(), name, code))

    def _values(self, name: str) -> dict[str, str]:
        address = self._address_for(name)
        found = {
            "bootstrap": address,
            "in": self._inputs,
            "out": self._outputs,
            "instance": self._known_as[name],
        }
        if self._client_files is not None:
            files = self._client_files(self._logs, name, address)
            found |= {"client": str(files["librdkafka"]), "java": str(files["java"])}
        return found

    # --- what is done to them

    @property
    def instances(self) -> list[str]:
        """Return the names of the instances that should run."""
        return [name for name in self.names if name not in self._removed]

    def add(self, known_as: str | None = None) -> str:
        """Start one more instance, and return its name.

        known_as: the value of `ONCELOG_INSTANCE`, which a replacement takes over from the instance
        that it replaces, instead of a new number.
        """
        with self._numbers:
            number = len(self._known_as) + 1
            name = f"instance-{number}"
            self._known_as[name] = known_as or str(number)
        self.start(name)
        return name

    def start(self, name: str) -> None:
        with uninterrupted(), self._lock:
            if self._is_closed:
                raise Failure(f"{name} is not started any more.")
            self._awake_since_s[name] = time.monotonic()
            self._paused.discard(name)
            super().start(name)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True  # after this, a fault in progress starts no instance
        super().close()

    def has_ended(self, name: str) -> bool:
        return self._children[name].process.poll() is not None

    def awake_since_s(self, name: str) -> float:
        """Return the time at which the instance was last started or resumed."""
        return self._awake_since_s[name]

    def known_as(self, name: str) -> str:
        return self._known_as[name]

    def kill(self, name: str) -> int:
        """Send SIGKILL to all processes of the instance, and return the pid of the first one."""
        child = self.unwanted(name)
        with suppress(ProcessLookupError):
            # first the whole group, then those outside the group
            os.killpg(child.process.pid, signal.SIGKILL)
        end_session(child.process.pid)
        child.process.wait()
        return child.process.pid

    def pause(self, name: str) -> int:
        process = self.running(name)
        self._paused.add(name)
        # first the group, then processes that left the group
        os.killpg(process.pid, signal.SIGSTOP)
        signal_session(process.pid, signal.SIGSTOP)
        wait_for_state(process, name, STATE_TIMEOUT_S, is_stopped=True)
        return process.pid

    def resume(self, name: str) -> None:
        signal_session(self._children[name].process.pid, signal.SIGCONT)
        if name in self._paused:
            self._paused.discard(name)
            self._awake_since_s[name] = time.monotonic()

    def end(self, name: str) -> str:
        """Send SIGTERM, and SIGKILL to the processes left after the first one's end, or after 10 s.

        Return a sentence about the end.
        """
        child = self.unwanted(name)
        self.ask_to_end(child.process)
        try:
            code = child.process.wait(self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            self.kill(name)
            return f"did not end within {self.stop_timeout_s:.0f} s of SIGTERM: kill -9"
        end_session(child.process.pid)
        return f"ended with code {code}"

    def ask_to_end(self, process: subprocess.Popen[bytes]) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        signal_session(process.pid, signal.SIGCONT)

    def stop(self, names: Iterable[str] | None = None) -> dict[str, int | None]:
        codes = super().stop(names)
        for name in codes:  # processes that a shell or a launcher has left
            end_session(self._children[name].process.pid)
        return codes

    def replaced(self, name: str) -> None:
        """Record that this instance was replaced, so it is not restarted after its end."""
        self.unwanted(name)
        self._removed.add(name)

    def remove(self, name: str) -> str:
        self._removed.add(name)
        return self.end(name)

    def restart(self, name: str) -> None:
        """Restart one instance by SIGTERM, as a liveness probe would."""
        self.end(name)
        self.start(name)

    def restart_all(self) -> list[str]:
        """Restart all instances by SIGTERM.

        Return the names of the instances that did not end by it, and were killed.
        """
        codes = self.stop(self.instances)
        self.ensure_running()
        return [name for name, code in codes.items() if code is None]

    def ensure_running(self) -> None:
        """Start each instance that should run and does not, and resume paused instances."""
        for name in self.instances:
            child = self._children[name]
            if child.process.poll() is None:
                self.resume(name)
            elif not child.is_wanted:  # else the watcher starts it
                self.start(name)

    # --- what it says

    def words(self, name: str) -> list[str]:
        """Return the last lines of an instance's log."""
        try:
            with self.log(name).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - WORDS_BYTES_MAX))
                return last_words(log.read().decode(errors="replace").splitlines())
        except FileNotFoundError:
            return []

    def told(self, name: str) -> str:
        """Return text with the last lines of an instance's log and the path of the log."""
        words = self.words(name)
        said = "".join(f"\n  {name} | {line}" for line in words) if words else " It said nothing."
        rest = f"Its whole output: {self.log(name)}" if self._is_kept else KEEP
        return f"{said}\n{rest}"

    def last_words(self, name: str) -> str:
        return f"its last output: {(self.words(name) or ['(none)'])[-1]}"


def require_program(command: Sequence[str]) -> None:
    """Raise Failure when the program does not exist."""
    if not command:
        raise Failure("Say what to run: oncelog prove ... -- COMMAND", exit_code=2)
    if command[0].startswith("-"):
        raise Failure(
            f"There is no option {command[0]}. `oncelog help prove` lists the options; the command "
            "of the application follows after --.",
            exit_code=2,
        )
    if shutil.which(command[0]) is None:
        raise Failure(f"There is no program {command[0]!r} to run.", exit_code=2)


def _filled(part: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        part = part.replace(f"{{{name}}}", value)
    return part
