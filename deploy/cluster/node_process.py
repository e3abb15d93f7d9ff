"""A node as an operating system process, with its start, its search, and signals."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from . import ports
from .advice import shell_command
from .failure import Failure
from .layout import NodeEntry, node_directory
from .private import opener, write_private

POLL_S = 0.002
ROUNDS_OF_ENDING = 3
STOP_TIMEOUT_S = 30.0
FAULT_TIMEOUT_S = 10.0
LOG_TAIL_BYTES = 64 * 1024
# A node gets only the variables that a process needs. Settings come only from its file.
KEPT_ENVIRONMENT = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
    "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """State, memory and CPU of a node's process, from the operating system."""

    node_id: int
    address: str
    pid: int | None
    state: str  # running, paused, down
    rss_bytes: int = 0
    cpu_s: float = 0.0
    started_s: float = 0.0  # wall clock
    context_switches: int = 0  # on Linux, of the main thread, which has the event loop


def node_file_of(command: Sequence[str]) -> Path | None:
    """Return the server.properties in a node's command line, or None for other programs."""
    *program, option, file = ["", "", *command]
    is_node = option == "--config" and any(part.startswith("oncelog.") for part in program)
    return Path(file) if is_node else None


class NodeProcess:
    """A node of the cluster in `data`. `module` is the program of its process."""

    module = "oncelog.node"

    def __init__(self, data: Path, entry: NodeEntry) -> None:
        self.data, self.entry, self.node_id = data, entry, entry.node_id
        self.directory = node_directory(data, entry.node_id)
        self.properties = self.directory / "server.properties"  # stands in the command line
        self.log, self.pid_file = self.directory / "node.log", self.directory / "node.pid"
        self._child: subprocess.Popen[bytes] | None = None

    def find(self, *, thorough: bool = False) -> psutil.Process | None:
        """Return the node's live process, or None if the node does not run.

        thorough: also search all processes, because a starter that was killed may not have written
        the pid file.
        """
        if self._child is not None and self._child.poll() is None:
            with contextlib.suppress(psutil.Error):
                return psutil.Process(self._child.pid)
        with contextlib.suppress(OSError, ValueError, psutil.Error):
            process = psutil.Process(int(self.pid_file.read_text()))
            if self._is_ours(process):
                return process
        return next(filter(self._is_ours, psutil.process_iter()), None) if thorough else None

    def program(self) -> list[str]:
        """Return the arguments with which Python runs the node's module.

        With -P, the working directory cannot shadow a module.
        """
        return ["-P", "-m", self.module]

    def spawn(self) -> None:
        """Start the process detached, with node.log and node.pid, without waiting for readiness."""
        environment = {k: v for k, v in os.environ.items() if k in KEPT_ENVIRONMENT}
        command = [sys.executable, *self.program(), "--config", str(self.properties)]
        with open(self.log, "ab", opener=opener) as log:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env=environment,
                start_new_session=True,
            )
        write_private(self.pid_file, f"{self._child.pid}\n")

    def exit_code(self) -> int | None:
        """Return the exit code, if this process started the node and the node has ended."""
        return self._child.poll() if self._child else None

    def kill(self) -> int:
        """Send SIGKILL to the process.

        Return the pid when the process has ended and the port refuses connections.
        """
        process = self._require()
        with self._allowed(process):
            process.send_signal(signal.SIGKILL)
        self._wait_until_gone(process, FAULT_TIMEOUT_S)
        return process.pid

    def terminate(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Send SIGTERM to the process, and wait for its end, or raise Failure at the timeout."""
        process = self._require()
        with contextlib.suppress(psutil.NoSuchProcess), self._allowed(process):
            if process.status() == psutil.STATUS_STOPPED:
                process.resume()  # a paused node cannot handle signals
            process.terminate()
        self._wait_until_gone(process, timeout_s)

    def pause(self) -> None:
        """Send SIGSTOP. Return when the process is in state T."""
        process = self._require()
        with self._allowed(process):
            process.suspend()
        wait_for_state(process, f"Node {self.node_id}", FAULT_TIMEOUT_S, is_stopped=True)

    def resume(self) -> None:
        """Send SIGCONT. Return when the process is no longer in state T."""
        process = self._require()
        with self._allowed(process):
            process.resume()
        wait_for_state(process, f"Node {self.node_id}", FAULT_TIMEOUT_S, is_stopped=False)

    def owns_its_port(self, pid: int) -> bool:
        """Return whether the process `pid` listens on the node's port."""
        try:
            connections = psutil.Process(pid).net_connections(kind="tcp")
        except psutil.Error:
            return False
        return any(
            c.status == psutil.CONN_LISTEN and c.laddr.port == self.entry.port for c in connections
        )

    def status(self) -> NodeStatus:
        """Return state, memory and CPU, with the state `down` without a process."""
        address = f"{self.entry.host}:{self.entry.port}"
        process = self.find()
        if process is not None:
            with contextlib.suppress(psutil.NoSuchProcess), process.oneshot():
                times, switches = process.cpu_times(), process.num_ctx_switches()
                is_stopped = process.status() == psutil.STATUS_STOPPED
                return NodeStatus(
                    self.node_id,
                    address,
                    process.pid,
                    "paused" if is_stopped else "running",
                    process.memory_info().rss,
                    times.user + times.system,
                    process.create_time(),
                    switches.voluntary + switches.involuntary,
                )
        return NodeStatus(self.node_id, address, None, "down")

    def log_tail(self, lines: int = 15, *, from_byte: int = 0) -> str:
        """Return the last `lines` of node.log after byte `from_byte`, or "" if there is no log."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(from_byte, self.log.stat().st_size - LOG_TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.removesuffix("\n").split("\n")[-lines:])

    def _is_ours(self, process: psutil.Process) -> bool:
        if not self._is_alive(process):
            return False
        if self._child is not None and self._child.pid == process.pid:
            return True  # inside exec the command line is empty for a moment
        with contextlib.suppress(psutil.Error):
            return node_file_of(process.cmdline()) == self.properties
        return False

    def _require(self) -> psutil.Process:
        process = self.find(thorough=True)
        if process is None:
            raise Failure(
                f"Node {self.node_id} is not running. Start it with: "
                f"{shell_command('start', self.node_id)}"
            )
        return process

    @contextlib.contextmanager
    def _allowed(self, process: psutil.Process) -> Iterator[None]:
        try:
            yield
        except psutil.AccessDenied:
            raise Failure(
                f"Node {self.node_id} (pid {process.pid}) belongs to {process.username()}. "
                "Run this as that user."
            ) from None

    def _wait_until_gone(self, process: psutil.Process, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while self._is_alive(process) or not ports.is_refused(self.entry.port, self.entry.host):
            if time.monotonic() > deadline:
                what = "is still alive" if self._is_alive(process) else "left its port in use"
                raise Failure(
                    f"Node {self.node_id} (pid {process.pid}) {what} {timeout_s:.0f} s after the "
                    f"signal. See {self.log}, or end it with: {shell_command('kill', self.node_id)}"
                )
            time.sleep(POLL_S)
        self.pid_file.unlink(missing_ok=True)

    def _is_alive(self, process: psutil.Process) -> bool:
        if self._child is not None and self._child.pid == process.pid:
            return self._child.poll() is None  # state Z alone may hide threads that still run
        try:
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


def wait_for_state(
    process: psutil.Process, name: str, timeout_s: float, *, is_stopped: bool
) -> None:
    """Wait until the process is stopped (state T) or not, as `is_stopped` says.

    Raises Failure at the timeout, or if the process has ended.
    """
    deadline = time.monotonic() + timeout_s
    try:
        while (process.status() == psutil.STATUS_STOPPED) != is_stopped:
            if time.monotonic() > deadline:
                word = "stop" if is_stopped else "go on"
                raise Failure(f"{name} (pid {process.pid}) did not {word}.")
            time.sleep(POLL_S)
    except psutil.NoSuchProcess:
        raise Failure(f"{name} (pid {process.pid}) has ended.") from None


class NodeNotReady(Failure):
    """The error of a node that does not serve, for a reason in its log."""

    def __init__(self, sentence: str, node: NodeProcess) -> None:
        super().__init__(f"{sentence} The whole log: {node.log}")
        self._sentence, self._node = sentence, node

    def with_log(self) -> Failure:
        """Return a Failure that quotes the end of node.log, in case the log will be removed."""
        return Failure(f"{self._sentence} The end of its log:\n{self._node.log_tail()}")


def end_nodes(nodes: Iterable[NodeProcess], *, is_graceful: bool) -> list[int]:
    """End nodes by SIGTERM if `is_graceful`, else by SIGKILL.

    Returns the nodes that had to be killed after SIGTERM. Nodes of an `up` that was killed are
    found and ended, too. If a fault restarts a node in the meantime, the new process is ended in
    another round. Raises Failure if nodes still run after ROUNDS_OF_ENDING rounds.
    """
    nodes, killed = list(nodes), list[int]()
    alive = _alive(nodes)
    for _ in range(ROUNDS_OF_ENDING):
        ending = [
            threading.Thread(target=_end, args=(node, is_graceful, killed), daemon=True)
            for node in alive
        ]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()
        alive = _alive(nodes)
        if not alive:
            return sorted(set(killed))
    left = [node.node_id for node in alive]
    raise Failure(f"Nodes {left} could not be ended; see `oncelog ps`.")


def _alive(nodes: Iterable[NodeProcess]) -> list[NodeProcess]:
    return [node for node in nodes if node.find(thorough=True) is not None]


def _end(node: NodeProcess, is_graceful: bool, killed: list[int]) -> None:
    if is_graceful:
        with contextlib.suppress(Failure):
            node.terminate()
            return
    with contextlib.suppress(Failure):
        node.kill()
        if is_graceful:
            killed.append(node.node_id)
