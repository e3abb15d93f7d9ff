"""Each command that owns a cluster, ended by each signal, early and at work: nothing is left."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from ..waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.cluster]
ONCELOG = [sys.executable, "-P", "-m", "oncelog.deploy.cli"]
APPLICATION = Path(__file__).parents[1] / "deploy" / "prove" / "programs" / "at_least_once.py"
BLOCK = """
import time
from oncelog import Cluster

with Cluster(3):
    time.sleep(300)
"""
COMMANDS = {
    "block": [sys.executable, "-P", "-c", BLOCK],
    "up": [*ONCELOG, "up", "--data", "{data}"],
    "demo": [*ONCELOG, "demo", "--engine", "workers", "--seed", "1"],
    "transfers": [*ONCELOG, "demo", "--job", "transfers", "--seed", "1"],
    "bench": [*ONCELOG, "bench", "replication", "--rf", "3", "--seconds", "60"],
    "chaos": [*ONCELOG, "chaos", "run", "--out", "{out}", "--seconds", "60", "--rate", "60"],
    "prove": [*ONCELOG, "prove", "--seconds", "60", "--seed", "1", "--", sys.executable,
              str(APPLICATION)],
}  # fmt: skip
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]
AT_WORK_S = 12.0  # after the nodes are there: applications and workers, too
END_TIMEOUT_S, LEFT_TIMEOUT_S = 60.0, 20.0


@pytest.fixture
def scratch() -> Iterator[Path]:
    """The temporary directory of a command and of all that it starts, which are known by it."""
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


@pytest.mark.parametrize("moment", ["starting", "at work"])
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("name", COMMANDS)
def test_ended_command_leaves_no_process_and_no_file(
    name: str, number: signal.Signals, moment: str, scratch: Path, tmp_path: Path
) -> None:
    if name == "up" and moment == "at work":
        pytest.skip("it has ended by then, and its cluster is to stay")
    places = {"data": str(scratch / "data"), "out": str(tmp_path / "out")}
    command = [part.format(**places) if "{" in part else part for part in COMMANDS[name]]
    environment = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
    with (tmp_path / "told").open("wb") as told:
        process = subprocess.Popen(
            command, stdout=told, stderr=told, start_new_session=True,
            env={**environment, "TMPDIR": str(scratch)},
        )  # fmt: skip
    until(lambda: nodes(scratch) >= (1 if moment == "starting" else 3), timeout_s=60)
    if moment == "at work":
        time.sleep(AT_WORK_S)
    assert process.poll() is None, (tmp_path / "told").read_text()
    process.send_signal(number)
    process.wait(END_TIMEOUT_S)
    assert process.returncode in (130, -number), (tmp_path / "told").read_text()
    assert "Traceback" not in (tmp_path / "told").read_text() or name == "block"

    def left() -> list[str]:
        return [*map(words, living(scratch)), *map(str, scratch.iterdir())]

    until(lambda: not left(), lambda: f"{left()}", timeout_s=LEFT_TIMEOUT_S)
