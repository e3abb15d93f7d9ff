"""Test `oncelog lesson` with typed keys and faults, and that it leaves no process."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from ...left import left_in
from ...waiting import until

pytestmark = pytest.mark.cluster


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Yield a new temporary directory, in which the test finds all files that are left behind."""
    short = Path(tempfile.mkdtemp(prefix="ole"))
    yield short
    shutil.rmtree(short)


class Reader:
    """A running `oncelog lesson`, and its reader at the keyboard."""

    def __init__(self, scratch: Path, *options: str) -> None:
        environment = {**os.environ, "TMPDIR": str(scratch)}
        environment.pop("XDG_RUNTIME_DIR", None)
        self.process = subprocess.Popen(
            (sys.executable, "-P", "-m", "oncelog.cli", "lesson", *options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def reads(self, words: str) -> re.Match[str]:
        """Read output up to a line that matches this expression, and return the match."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(words, line):
                return found
        raise AssertionError(f"{words!r} was never said: {self.process.communicate()[1]}")

    def answers(self, keys: str) -> None:
        """Wait for the next question, and type these keys."""
        self.reads("^Enter: ")
        assert self.process.stdin is not None
        self.process.stdin.write(keys + "\n")
        self.process.stdin.flush()


def test_lesson_hanging_transaction_is_left_by_a_kill_and_ended_by_enter(scratch: Path) -> None:
    with Reader(scratch, "--text", "--from", "5") as reader:
        pid = int(reader.reads(r"Kill it: kill -9 (\d+)")[1])
        os.kill(pid, signal.SIGKILL)
        assert int(reader.reads(r"(\d+) offsets cannot be read")[1]) == 11
        reader.reads("why orders-1/0")
        reader.reads("txn abort lesson-1")
        reader.answers("")
        reader.reads("all records after it can be read")
        reader.answers("")
        reader.reads("The lesson has ended")
        assert reader.process.wait(60) == 0
    until(lambda: not left_in(scratch), lambda: f"{left_in(scratch)}")


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.chaos), signal.SIGKILL]
)
def test_lesson_ended_by_a_signal_leaves_no_process(scratch: Path, number: signal.Signals) -> None:
    with Reader(scratch, *(("--text",) if number == signal.SIGKILL else ("--no-open",))) as reader:
        reader.reads(r"Kill it: kill -9 (\d+)")
        reader.process.send_signal(number)
        _, told = reader.process.communicate(timeout=60)
        assert "Traceback" not in told
        assert reader.process.returncode in (130, -signal.SIGKILL)
    until(lambda: not left_in(scratch), lambda: f"{left_in(scratch)}")


@pytest.mark.chaos
def test_lesson_counts_lost_and_duplicate_invoices_as_each_mode_promises(scratch: Path) -> None:
    pytest.importorskip("uvicorn", reason="the extra ui is not installed")
    with Reader(scratch, "--no-open") as reader:
        reader.reads("The page: http://127.0.0.1:")
        counts = r"(\d+) orders have no invoice, and (\d+) have two"
        found: list[list[int]] = []
        for _ in range(3):
            reader.reads("Kill it")
            reader.answers("")
            found.append([int(each) for each in reader.reads(counts).groups()])
            reader.reads("Look: http://127.0.0.1:")
            reader.answers("")
        (lost, none_doubled), (none_lost, doubled), exactly = found
        assert (lost > 0, none_doubled, none_lost, doubled > 0) == (True, 0, 0, True)
        assert exactly == [0, 0]
        pid = int(reader.reads(r"Stop it: kill -STOP (\d+)")[1])
        os.kill(pid, signal.SIGSTOP)
        reader.reads("Resume the first one")
        os.kill(pid, signal.SIGCONT)
        reader.reads("fenced")
        assert reader.reads(counts).groups() == ("0", "0")
        reader.answers("r")
        reader.reads("4 of 5")
        reader.reads("Stop it")
        reader.answers("s")
        reader.reads("skipped")
        reader.answers("q")
        assert reader.process.wait(60) == 0
    until(lambda: not left_in(scratch), lambda: f"{left_in(scratch)}")
