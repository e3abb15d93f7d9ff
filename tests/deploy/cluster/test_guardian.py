"""Test that a guardian ends the children of a killed owner, unless the owner dismissed it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from oncelog.deploy.cluster.ends import leftovers
from oncelog.deploy.cluster.ends.guardian import RUN, Guardian
from oncelog.deploy.cluster.ends.leftovers import end_run

from ...waiting import until

OWNER = """
import os, subprocess, sys, time
from oncelog.deploy.cluster.ends.guardian import environment_of, guardian, new_run

run, folder = new_run(), sys.argv[1]
guardian.keep("directory", folder)
os.mkdir(folder)
guardian.keep("run", run)
shell = ["sh", "-c", "setsid sleep 300 & sleep 300"]  # the first one leaves every session of ours
child = subprocess.Popen(shell, env=environment_of(run), start_new_session=True)
{more}
print(child.pid, guardian._process.pid if guardian._process else 0, flush=True)
time.sleep(300)
"""
FORKS = "os.fork() or time.sleep(300)"  # the forked child holds the pipe to the guardian open
FORGETS = "guardian.forget('directory', folder); guardian.forget('run', run)"


@contextmanager
def started(
    folder: Path, more: str = "", *, working: Path | None = None
) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """Yield an owner process, and the pids of its child and of its guardian."""
    command = [sys.executable, "-c", OWNER.format(more=more), str(folder)]
    owner = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True,
        cwd=working or folder.parent,
    )  # fmt: skip
    try:
        assert owner.stdout is not None
        child, guardian = map(int, owner.stdout.readline().split())
        yield owner, child, guardian
    finally:
        with suppress(ProcessLookupError):
            os.killpg(owner.pid, signal.SIGKILL)  # and its forks
        owner.communicate()


def sleepers(folder: Path) -> list[psutil.Process]:
    """Return the running `sleep` processes with the parent of `folder` as working directory.

    They are the children of the owners that a test has started.
    """
    found: list[psutil.Process] = []
    for process in psutil.process_iter(["cwd", "name", "status"]):
        is_there = process.info["cwd"] == str(folder.parent) and process.info["name"] == "sleep"
        if is_there and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


@pytest.mark.parametrize("more", ["", FORKS], ids=["alone", "forked"])
def test_guardian_of_a_killed_owner_ends_its_children_and_removes_its_directory(
    tmp_path: Path, more: str
) -> None:
    folder = tmp_path / "kept"
    with started(folder, more) as (owner, _, guardian):
        until(lambda: len(sleepers(folder)) == 2)
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        until(lambda: not sleepers(folder) and not folder.exists())
        until(lambda: not psutil.pid_exists(guardian))


KILLED_AT_THE_START = """
import os, signal, subprocess, sys
from oncelog.deploy.cluster.ends import guardian

def start_and_be_killed(*command, **options):
    started(*command, **options)
    os.kill(os.getpid(), signal.SIGKILL)

started, subprocess.Popen = subprocess.Popen, start_and_be_killed
guardian.guardian.keep("directory", sys.argv[1])
"""


def test_guardian_of_an_owner_killed_at_its_start_removes_the_directory(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    owner = subprocess.run([sys.executable, "-c", KILLED_AT_THE_START, str(folder)], check=False)
    assert owner.returncode == -signal.SIGKILL
    until(lambda: not folder.exists())


def test_item_registered_again_outlives_a_guardian_whose_start_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guardian, started, start = Guardian(), list[subprocess.Popen[bytes]](), subprocess.Popen

    def start_and_interrupt(*command: Any, **options: Any) -> None:
        started.append(start(*command, **options))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", start_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            guardian.keep("directory", tmp_path / "kept")
    guardian.keep("directory", tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    started[0].wait()
    assert (tmp_path / "kept").exists()
    guardian.forget("directory", tmp_path / "kept")


def test_guardian_ignores_signals_and_the_removal_of_its_working_directory(tmp_path: Path) -> None:
    """A service manager sends its signal to all processes of a service."""
    folder, working = tmp_path / "kept", tmp_path / "working"
    working.mkdir()
    with started(folder, working=working) as (owner, child, guardian):
        run = run_of(child)
        working.rmdir()
        until(lambda: ignores_termination(guardian))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(guardian, number)
        owner.terminate()
        owner.wait()
        until(lambda: not folder.exists())
        until(lambda: run not in [each for each, _ in leftovers._children()])
        until(lambda: not psutil.pid_exists(guardian))


def run_of(child: int) -> str:
    """Return the run id in the child's environment, once exec has set that environment."""
    until(lambda: RUN in psutil.Process(child).environ())
    return psutil.Process(child).environ()[RUN]


def ignores_termination(pid: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [mask] = [int(line.split()[1], 16) for line in lines if line.startswith("SigIgn")]
    return bool(mask >> (signal.SIGTERM - 1) & 1)


def test_guardian_holds_only_one_pipe_of_its_owner(tmp_path: Path) -> None:
    """The guardian of `oncelog up | cat` holds neither the terminal nor the pipe to `cat`."""
    with started(tmp_path / "kept") as (_, _, guardian):
        until(lambda: ignores_termination(guardian))
        files = [os.readlink(file) for file in Path(f"/proc/{guardian}/fd").iterdir()]
        assert len([file for file in files if file.startswith("pipe:")]) == 1
        assert {file for file in files if "/" in file} == {"/dev/null"}
        assert os.getsid(guardian) == guardian


def test_process_with_a_dead_or_younger_owner_is_an_orphan() -> None:
    """The pid of a dead owner may belong to a younger process."""
    us, parent = psutil.Process(), os.getppid()
    with subprocess.Popen(["sleep", "300"]) as younger:
        assert leftovers._is_orphan(f"{younger.pid}-x", us)
        younger.kill()
    assert leftovers._is_orphan(f"{younger.pid}-x", us)
    assert not leftovers._is_orphan(f"{parent}-x", us)
    assert not leftovers._is_orphan("x", us)


def test_guardian_dismissed_by_its_owner_keeps_children_and_directory(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    with started(folder, FORGETS) as (owner, child, guardian):
        assert guardian == 0  # dismissed with the last of them
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        assert folder.exists() and psutil.pid_exists(child)
        end_run(run_of(child))  # as `down --all` does
        until(lambda: not sleepers(folder))


def test_guardian_that_was_killed_is_replaced_at_the_next_request(tmp_path: Path) -> None:
    guardian = Guardian()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    guardian.keep("directory", tmp_path / "a")
    first = guardian._process
    assert first is not None
    first.kill()
    first.wait()
    guardian.keep("directory", tmp_path / "b")
    second = guardian._process
    assert second is not None and second is not first
    guardian._hang_up()  # as if this process had ended
    second.wait()
    until(lambda: not list(tmp_path.iterdir()))
