"""Test the line about a cluster in which no broker answers, before a command gives up."""

import contextlib
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ..programs import CLI

END_S = 20.0  # from Ctrl-C to the end on a busy machine; otherwise 0.1 s
COMMANDS = {  # with the seconds for which they still try
    "topic list": 8,
    "consume orders": 13,
    "consume orders --group g": 13,
    "produce orders lines": 58,
    "check orders": 13,
    "observe": 8,
    "doctor --probe": 3,
    "bench txn": 18,
    "certify oncelog-transactional --out out": 8,
    "prove --in a --out b": 13,
}


@contextlib.contextmanager
def began(folder: Path, commands: list[str], address: str) -> Iterator[list[subprocess.Popen[str]]]:
    (folder / "lines").write_text("a\n")
    processes = list[subprocess.Popen[str]]()
    try:
        for command in commands:
            words = [*command.split(), "--bootstrap", address]
            if words[0] == "prove":
                words += ["--", "true"]
            processes.append(
                subprocess.Popen(
                    [*CLI, *words], cwd=folder, text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                )
            )  # fmt: skip
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    """Return the first line on stderr about an answer that is missing."""
    assert process.stderr is not None
    return next((line for line in process.stderr if "broker answers" in line), "")


def interrupted(process: subprocess.Popen[str]) -> tuple[str, int, str, str]:
    """Interrupt a command at its line. Return the line, the exit code, and all other output."""
    line = line_of(process)
    process.send_signal(signal.SIGINT)
    out, rest = process.communicate(timeout=END_S)
    return line, process.returncode, out, rest


@pytest.mark.parametrize("kind", ["refuses", "is silent"])
def test_command_without_an_answer_says_so_once_on_stderr_and_ends_at_ctrl_c(
    kind: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        if kind == "refuses":
            listener.close()
        why = "connection refused" if kind == "refuses" else "no answer"
        commands = list(COMMANDS) if kind == "refuses" else ["topic list", "consume orders"]
        with (
            began(tmp_path, commands, address) as processes,
            ThreadPoolExecutor(len(commands)) as pool,  # each is interrupted at its line
        ):
            seen = list(pool.map(interrupted, processes))
        for command, (line, code, out, rest) in zip(commands, seen, strict=True):
            tried_s = COMMANDS[command]
            said = f"no broker answers at {address} yet ({why}); trying for {tried_s} s\n"
            assert (command, line, code, out) == (command, said, 130, "")
            assert "broker answers" not in rest and rest.endswith("oncelog: interrupted\n"), rest


@pytest.mark.parametrize("command", ["top --once", "events"])
def test_command_that_watches_a_cluster_says_that_no_broker_answers(
    command: str, tmp_path: Path
) -> None:
    with began(tmp_path, [command], "127.0.0.1:1") as (process,):
        assert line_of(process) == "no broker answers at 127.0.0.1:1 yet (connection refused)\n"


def test_final_error_follows_the_line(tmp_path: Path) -> None:
    with began(tmp_path, ["topic list --format json"], "127.0.0.1:1") as (process,):
        out, lines = process.communicate(timeout=60)
        first, second = lines.splitlines()
        assert (process.returncode, out, len(first) <= 80) == (1, "", True)
        assert "yet (connection refused); trying for 8 s" in first
        assert second.startswith("oncelog: no broker answers: 127.0.0.1:1 cannot be reached")
