"""Each command that owns a cluster leaves nothing when it is ended by any signal at any moment."""

import fcntl
import os
import pty
import select
import shutil
import signal
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
    "demo": [*ONCELOG, "demo", "--engine", "workers", "--seed", "1"],
    "transfers": [*ONCELOG, "demo", "--job", "transfers", "--seed", "1"],
    "bench": [*ONCELOG, "bench", "replication", "--rf", "3", "--seconds", "60"],
    "chaos": [*ONCELOG, "chaos", "run", "--out", "{out}", "--seconds", "60", "--rate", "60"],
    "prove": [*ONCELOG, "prove", "--seconds", "60", "--seed", "1", "--", sys.executable,
              str(APPLICATION)],
}  # fmt: skip
SCRIPTS = ("block", "no block")
HAVE_CHILDREN = ("demo", "transfers", "chaos", "prove")
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]
MOMENTS = ["before its nodes", "starting", "at work", "ending"]
NODES = 3
AT_WORK_S = 1.0  # when all processes are there
END_TIMEOUT_S, LEFT_TIMEOUT_S = 60.0, 20.0


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Yield the temporary directory of a command, by which all its processes are found."""
    short = Path(tempfile.mkdtemp(prefix="ols"))  # sockets want short paths
    yield short
    for process in living(short):
        with suppress(psutil.Error):
            process.kill()
    shutil.rmtree(short, ignore_errors=True)


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
    """A command in a session of its own, with its output in a file or a terminal."""

    def __init__(self, name: str, scratch: Path, folder: Path, terminal: int | None = None) -> None:
        self.name, self.scratch, self._told = name, scratch, folder / "told"
        places = {"data": str(scratch / "data"), "out": str(folder / "out")}
        command = [part.format(**places) if "{" in part else part for part in COMMANDS[name]]
        environment = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
        with self._told.open("wb") as told:
            self.process = subprocess.Popen(
                command, stdin=terminal, stdout=terminal or told, stderr=terminal or told,
                env={**environment, "TMPDIR": str(scratch)}, start_new_session=True,
                preexec_fn=None if terminal is None else take_terminal,
            )  # fmt: skip

    def told(self) -> str:
        return self._told.read_text()

    def wait_for(self, moment: str) -> None:
        """Return when the command has reached the moment."""
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


def read_until(terminal: int, is_over: threading.Event) -> None:
    """Read the output of a terminal, then close its window."""
    while not is_over.is_set():
        if select.select([terminal], [], [], 0.1)[0]:
            os.read(terminal, 65536)
    os.close(terminal)


def take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("name", COMMANDS)
def test_ended_command_leaves_no_process_no_file_and_no_port(
    name: str, number: signal.Signals, moment: str, scratch: Path, tmp_path: Path
) -> None:
    if name == "up" and moment in ("at work", "ending"):
        pytest.skip("it has ended by then, and its cluster is to stay")
    command = Started(name, scratch, tmp_path)
    command.wait_for(moment)
    ports = listening(scratch)
    command.process.send_signal(number)
    command.process.wait(END_TIMEOUT_S)
    codes = (130, -number, -signal.SIGINT) if moment == "ending" else (130, -number)
    assert command.process.returncode in codes, command.told()
    assert "Traceback" not in command.told() or name in SCRIPTS
    until(lambda: not command.left(), lambda: f"{command.left()}", timeout_s=LEFT_TIMEOUT_S)
    assert all(is_refused(port) for port in ports)


@pytest.mark.parametrize("name", COMMANDS)
def test_closed_terminal_leaves_no_process_and_no_file(
    name: str, scratch: Path, tmp_path: Path
) -> None:
    """SIGHUP comes, and output fails from then on."""
    ours, theirs = pty.openpty()
    command = Started(name, scratch, tmp_path, theirs)
    os.close(theirs)
    is_over = threading.Event()
    window = threading.Thread(target=read_until, args=(ours, is_over))
    window.start()
    try:
        command.wait_for("starting" if name == "up" else "at work")
    finally:
        is_over.set()
        window.join()
    command.process.wait(END_TIMEOUT_S)
    until(lambda: not command.left(), lambda: f"{command.left()}", timeout_s=LEFT_TIMEOUT_S)
