"""Test that an interrupted run leaves nothing behind, and that a used directory is refused."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from oncelog.deploy.cluster import layout
from oncelog.deploy.cluster.ports import is_refused

pytestmark = [pytest.mark.cluster]
TIMEOUT_S = 60.0


def command(run: Path, *more: str) -> list[str]:
    return [
        sys.executable, "-P", "-m", "oncelog.cli", "chaos", "run", "--out", str(run),
        "--rate", "60", *more,
    ]  # fmt: skip


def words_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.mark.in_turn
def test_chaos_run_terminated_midway_leaves_no_process_and_no_open_port(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with subprocess.Popen(command(run, "--seconds", "60"), stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + TIMEOUT_S
        while not list((run / "workers").glob("*.log")):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.1)
        file = layout.read(run / "cluster")
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130 and b"Traceback" not in told, told
    assert file is not None and not Path(file.peer_directory).exists()
    assert all(is_refused(node.port, node.host) for node in file.nodes)
    # a process that is just being started has no owner yet, and ends by itself
    while left := [each for each in psutil.process_iter() if str(run) in words_of(each)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def test_chaos_run_into_a_nonempty_directory_is_refused_and_changes_no_file(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    done = subprocess.run(command(tmp_path), capture_output=True, timeout=60, check=False)
    assert done.returncode == 2 and b"is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
