"""Test that Ctrl-C at any moment ends the command, and leaves no file and no process."""

import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from oncelog.deploy.cluster.ends.interrupts import (
    ENDING,
    ended_as_by_ctrl_c,
    uninterrupted,
)

from ...waiting import until

PROGRAM = Path(__file__).parent / "programs" / "at_least_once.py"
MARK = "ONCELOG_TEST_MARK"
LONGEST_S = 30.0  # of a run: start, faults, drain
END_TIMEOUT_S = 60.0


def marked(mark: str) -> list[psutil.Process]:
    """Return all running processes that the command started, even without a parent."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def listening(processes: list[psutil.Process]) -> set[int]:
    ports: set[int] = set()
    for process in processes:
        with suppress(psutil.Error):
            found = process.net_connections("tcp")
            ports |= {each.laddr.port for each in found if each.status == psutil.CONN_LISTEN}
    return ports


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(12))
def test_prove_interrupted_by_ctrl_c_leaves_no_process_and_no_file(
    seed: int, tmp_path: Path
) -> None:
    chance = random.Random(f"ctrl-c {seed}")
    mark = secrets.token_hex(8)
    command = [sys.executable, "-m", "oncelog.cli", "prove", "--seed", str(seed)]
    (tmp_path / "scratch").mkdir()
    with (tmp_path / "told").open("wb") as told:
        process = subprocess.Popen(
            [*command, "--seconds", "12", "--", sys.executable, str(PROGRAM)],
            stdout=told, stderr=told, start_new_session=True,
            env={**os.environ, MARK: mark, "TMPDIR": str(tmp_path / "scratch")},
        )  # fmt: skip
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0.5, LONGEST_S))
        was_running = process.poll() is None
        ports = listening(marked(mark))
        for _ in range(chance.choice((1, 1, 2))):  # some users are impatient
            with suppress(ProcessLookupError):  # as a terminal does it: to all in the foreground
                os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.3)
        process.wait(END_TIMEOUT_S)
        until(lambda: not marked(mark))
        assert all(is_free(port) for port in ports)
        left = [path.name for path in (tmp_path / "scratch").iterdir()]
        assert left == [], (tmp_path / "told").read_text()
        assert not was_running or process.returncode in (130, -signal.SIGINT, 1)
    finally:
        for each in marked(mark):
            with suppress(psutil.Error):
                each.kill()


def test_ctrl_c_is_raised_even_if_the_awaited_step_fails() -> None:
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        raise OSError("no space")


@pytest.mark.parametrize("exchange", ["at the beginning", "at the end"])
def test_sigterm_during_a_change_of_signal_handlers_restores_the_old_handlers(
    monkeypatch: pytest.MonkeyPatch, exchange: str
) -> None:
    """Another thread may receive the signal, but Python handles it in the main thread."""
    install, seen = signal.signal, list[str]()
    is_over = threading.Event()
    other = threading.Thread(target=is_over.wait)

    def interrupted(number: int, handler: object) -> object:
        found = install(number, handler)  # type: ignore[arg-type]
        if number == signal.SIGINT and ("body" in seen) == (exchange == "at the end"):
            monkeypatch.setattr(signal, "signal", install)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)  # a signal of the process may need a moment
        return found

    before = [signal.getsignal(number) for number in ENDING]
    other.start()
    try:
        with ended_as_by_ctrl_c(), pytest.raises(KeyboardInterrupt):
            monkeypatch.setattr(signal, "signal", interrupted)
            with uninterrupted():
                seen.append("body")
            pytest.fail("the signal was lost")
    finally:
        is_over.set()
        other.join()
    assert [signal.getsignal(number) for number in ENDING] == before


def test_uninterrupted_block_with_an_ignored_sighup_raises_only_ctrl_c() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
    try:
        with pytest.raises(KeyboardInterrupt), uninterrupted():
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGHUP, before)
