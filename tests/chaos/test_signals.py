"""Test that each command that starts a cluster leaves no process and no file after a signal.

The signal is sent before, during and after the start of the nodes, and during the shutdown.
"""

import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.cluster.ports import is_refused

from ..waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.cluster]
ONCELOG = [sys.executable, "-P", "-m", "oncelog.cli"]
APPLICATION = Path(__file__).parents[1] / "proof" / "prove" / "programs" / "at_least_once.py"
BLOCK = """
import time
from oncelog import Cluster

with Cluster(3):
    time.sleep(300)
"""
NO_BLOCK = """
import time
from oncelog import Cluster

Cluster(3).up()
time.sleep(300)
"""
COMMANDS = {
    "block": [sys.executable, "-P", "-c", BLOCK],
    "no block": [sys.executable, "-P", "-c", NO_BLOCK],
    "up": [*ONCELOG, "up", "--data", "{data}"],
    "up --metrics": [*ONCELOG, "up", "--metrics", "--data", "{data}"],
    "demo": [*ONCELOG, "demo", "--engine", "workers", "--seed", "1"],
    "transfers": [*ONCELOG, "demo", "--job", "transfers", "--seed", "1"],
    "bench": [*ONCELOG, "bench", "replication", "--rf", "3", "--seconds", "60"],
    "chaos": [*ONCELOG, "chaos", "run", "--out", "{out}", "--seconds", "60", "--rate", "60"],
    "prove": [*ONCELOG, "prove", "--seconds", "60", "--seed", "1", "--", sys.executable,
              str(APPLICATION)],
    "lesson": [*ONCELOG, "lesson", "--no-open"],
    "lesson --text": [*ONCELOG, "lesson", "--text"],
}  # fmt: skip
LOOKERS = {
    "ui": [*ONCELOG, "ui", "--no-open"],
    "ui in a browser": [*ONCELOG, "ui"],
    "top": [*ONCELOG, "top"],
    "metrics": [*ONCELOG, "metrics"],
}
SHOWN = {"ui": "/?token=", "ui in a browser": "/?token=", "top": "q end", "metrics": "/metrics"}
LOOKING = ["starting", "at work", "ending"]
SCRIPTS = ("block", "no block")
HAVE_CHILDREN = ("demo", "transfers", "chaos", "prove", "lesson", "lesson --text")
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]
MOMENTS = ["before its nodes", "starting", "at work", "ending"]
NODES = 3
AT_WORK_S = 1.0  # when all processes are there
END_TIMEOUT_S, LEFT_TIMEOUT_S = 60.0, 20.0


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Yield a command's temporary directory, and kill the processes left in it at the end."""
    short = Path(tempfile.mkdtemp(prefix="ols"))  # sockets want short paths
    yield short
    for process in living(short):
        with suppress(psutil.Error):
            process.kill()
    shutil.rmtree(short, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(1, data=tmp_path_factory.mktemp("looked at") / "data") as running:
        yield running


def living(scratch: Path) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            is_one = process.environ().get("TMPDIR") == str(scratch)
            if is_one and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def nodes(scratch: Path) -> int:
    return sum("--config" in words(process) for process in living(scratch))


def words(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def listening(scratch: Path) -> set[int]:
    ports: set[int] = set()
    for process in living(scratch):
        with suppress(psutil.Error):
            found = process.net_connections("tcp")
            ports |= {each.laddr.port for each in found if each.status == psutil.CONN_LISTEN}
    return ports


class Started:
    """A command in its own session, with its output in a file or a terminal."""

    def __init__(self, name: str, scratch: Path, folder: Path, terminal: int | None = None) -> None:
        self.name, self.scratch, self._told = name, scratch, folder / "told"
        places = {"data": str(scratch / "data"), "out": str(folder / "out")}
        command = [part.format(**places) if "{" in part else part for part in COMMANDS[name]]
        environment = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
        keys, self._keys = os.pipe()  # an input that stays open and empty
        with self._told.open("wb") as told:
            self.process = subprocess.Popen(
                command, stdin=keys if terminal is None else terminal,
                stdout=terminal or told, stderr=terminal or told,
                env={**environment, "TMPDIR": str(scratch)}, start_new_session=True,
                preexec_fn=None if terminal is None else take_terminal,
            )  # fmt: skip
        os.close(keys)

    def ended(self) -> int:
        """Wait until the command has ended, and return its exit code."""
        code = self.process.wait(END_TIMEOUT_S)
        os.close(self._keys)
        return code

    def told(self) -> str:
        return self._told.read_text()

    def wait_for(self, moment: str) -> None:
        """Wait until the command is at a moment of its run, such as "starting" or "ending"."""
        wanted = {"before its nodes": 0, "starting": 1}.get(moment, NODES)
        until(
            lambda: len(living(self.scratch)) > 1 and nodes(self.scratch) >= wanted,
            self.told,
            timeout_s=60,
        )
        if moment in ("at work", "ending"):
            least = NODES + 2 + (self.name in HAVE_CHILDREN)  # itself, its guardian
            until(lambda: len(living(self.scratch)) >= least, self.told, timeout_s=60)
            time.sleep(AT_WORK_S)
        assert self.process.poll() is None, self.told()
        if moment == "ending":
            self.process.send_signal(signal.SIGINT)
            until(lambda: nodes(self.scratch) < NODES or self.process.poll() is not None)

    def left(self) -> list[str]:
        return [*map(words, living(self.scratch)), *map(str, self.scratch.iterdir())]


class Looker:
    """A command that displays another process's cluster, such as `top`, in a pseudo-terminal."""

    def __init__(self, name: str, scratch: Path, cluster: Cluster) -> None:
        self.scratch, self._wanted = scratch, SHOWN[name]
        self.told = self.shown = b""
        self.terminal, theirs = pty.openpty()
        self.before = termios.tcgetattr(theirs)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
        environment |= {
            "TMPDIR": str(scratch),
            "DISPLAY": ":0",
            "BROWSER": "true %s",
            "TERM": "xterm",
        }
        self.process = subprocess.Popen(
            [*LOOKERS[name], "--data", str(cluster.data)], stdin=theirs, stdout=theirs,
            stderr=theirs, env=environment, start_new_session=True, preexec_fn=take_terminal,
        )  # fmt: skip
        self._theirs = theirs

    def wait_for(self, moment: str) -> None:
        if moment == "starting":
            until(lambda: living(self.scratch), timeout_s=60)
        else:
            self.wait_for_words(self._wanted)
        if moment == "ending":
            self.process.send_signal(signal.SIGINT)

    def wait_for_words(self, wanted: str) -> None:
        """Read the terminal until the text is displayed after this call."""
        until(lambda: wanted in self._read(), self._read, timeout_s=60)
        self.told, self.shown = self.told + self.shown, b""

    def close(self) -> None:
        """Close both ends of the terminal."""
        os.close(self._theirs)
        os.close(self.terminal)

    def ended(self) -> int:
        """Read the command's output until the command ends, and return its exit code."""

        def has_ended() -> bool:
            self._read()
            return self.process.poll() is not None

        until(has_ended, timeout_s=END_TIMEOUT_S)
        self.after = termios.tcgetattr(self._theirs)
        self._read()
        self.told += self.shown
        self.close()
        return self.process.returncode

    def _read(self) -> str:
        while select.select([self.terminal], [], [], 0)[0]:
            self.shown += os.read(self.terminal, 65536)
        return self.shown.decode(errors="replace")


def read_until(terminal: int, is_over: threading.Event) -> None:
    """Read and discard the output of a terminal until the event is set, then close the terminal."""
    while not is_over.is_set():
        if select.select([terminal], [], [], 0.1)[0]:
            os.read(terminal, 65536)
    os.close(terminal)


def take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("name", COMMANDS)
def test_command_that_starts_a_cluster_leaves_no_process_file_or_open_port_after_a_signal(
    name: str, number: signal.Signals, moment: str, scratch: Path, tmp_path: Path
) -> None:
    if name.startswith("up") and moment in ("at work", "ending"):
        pytest.skip("it has ended by then, and its cluster is to stay")
    command = Started(name, scratch, tmp_path)
    command.wait_for(moment)
    ports = listening(scratch)
    command.process.send_signal(number)
    codes = (130, -number, -signal.SIGINT) if moment == "ending" else (130, -number)
    assert command.ended() in codes, command.told()
    assert "Traceback" not in command.told() or name in SCRIPTS
    until(lambda: not command.left(), lambda: f"{command.left()}", timeout_s=LEFT_TIMEOUT_S)
    assert all(is_refused(port) for port in ports)


@pytest.mark.parametrize("name", COMMANDS)
def test_command_that_starts_a_cluster_leaves_no_process_and_no_file_if_its_terminal_closes(
    name: str, scratch: Path, tmp_path: Path
) -> None:
    """The command gets SIGHUP, and each write to its terminal fails afterwards."""
    ours, theirs = pty.openpty()
    command = Started(name, scratch, tmp_path, theirs)
    os.close(theirs)
    is_over = threading.Event()
    window = threading.Thread(target=read_until, args=(ours, is_over))
    window.start()
    try:
        command.wait_for("starting" if name.startswith("up") else "at work")
    finally:
        is_over.set()
        window.join()
    command.ended()
    until(lambda: not command.left(), lambda: f"{command.left()}", timeout_s=LEFT_TIMEOUT_S)


@pytest.mark.parametrize("moment", LOOKING)
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("name", LOOKERS)
def test_live_view_ended_by_a_signal_leaves_no_process_and_restores_the_terminal_unless_killed(
    name: str, number: signal.Signals, moment: str, scratch: Path, cluster: Cluster
) -> None:
    command = Looker(name, scratch, cluster)
    command.wait_for(moment)
    ports = listening(scratch)
    command.process.send_signal(number)
    code, told = command.ended(), command.told.decode(errors="replace")
    if moment != "starting":  # a signal at the start ends Python during imports
        codes = (-number,) if number == signal.SIGKILL else (0,)
        assert code in (codes if moment == "at work" else (0, 130, -number)), told
        assert "Traceback" not in told
    if code != -signal.SIGKILL:
        assert command.after == command.before
        assert told.count("\x1b[?1049h") == told.count("\x1b[?1049l")
    left = lambda: [*map(words, living(scratch)), *map(str, scratch.iterdir())]  # noqa: E731
    until(lambda: not left(), lambda: f"{left()}", timeout_s=LEFT_TIMEOUT_S)
    assert all(is_refused(port) for port in ports)


def test_top_in_a_terminal_reacts_to_keys_and_restores_the_terminal_at_its_end(
    scratch: Path, cluster: Cluster
) -> None:
    command = Looker("top", scratch, cluster)
    command.wait_for("at work")
    for keys, words_shown in (
        (b"s", "s sort (LEADERS)"),
        (b"\t", "groups"),
        (b"/abc", "filter: abc"),
    ):
        os.write(command.terminal, keys)
        command.wait_for_words(words_shown)
    os.write(command.terminal, b"\x1b")
    command.wait_for_words("q end")
    os.write(command.terminal, b"q")
    assert command.ended() == 0
    assert command.after == command.before
    until(lambda: not living(scratch), lambda: f"{living(scratch)}")


def test_top_at_a_closed_terminal_leaves_no_process(scratch: Path, cluster: Cluster) -> None:
    command = Looker("top", scratch, cluster)
    command.wait_for("at work")
    command.close()
    command.process.wait(END_TIMEOUT_S)
    until(lambda: not living(scratch), lambda: f"{living(scratch)}")
    assert not list(scratch.iterdir())
