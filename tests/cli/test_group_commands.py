"""Test options of `oncelog group`, interrupted commands, and the parsing of assignments."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from oncelog.cli.groups import destination, target
from oncelog.cli.main import run
from oncelog.client.groups.descriptions import assigned_partitions
from oncelog.deploy.cluster import lookup
from oncelog.deploy.cluster.failure import Failure


def test_group_reset_target_is_parsed_as_time_or_offset() -> None:
    assert target("earliest") == ("time", -2)
    assert target("latest") == ("time", -1)
    assert target("17") == ("offset", 17)
    moment = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
    assert target("2026-01-31T12:00:00+00:00") == ("time", round(moment.timestamp() * 1000))
    for text in ("soon", "-3", ""):
        with pytest.raises(Failure, match="neither earliest"):
            target(text)


@pytest.mark.parametrize(
    ("asked", "by", "before", "at_time", "expected"),
    [
        (("offset", 15), None, 12, None, 15),
        (("offset", 3), None, 12, None, 10),
        (("offset", 99), None, 12, None, 20),
        (("time", 5), None, 12, 14, 14),
        (("time", 5), None, 12, -1, 20),
        (("time", 5), None, 12, None, 20),
        (None, 3, 12, None, 15),
        (None, -9, 12, None, 10),
        (None, 4, None, None, 14),
    ],
)
def test_group_reset_offset_outside_the_log_is_moved_to_its_start_or_end(
    asked: tuple[str, int] | None,
    by: int | None,
    before: int | None,
    at_time: int | None,
    expected: int,
) -> None:
    found = destination(asked, by, before=before, at_time=at_time, bounds=(10, 20))
    assert found == expected


@pytest.mark.parametrize(
    "arguments",
    [
        ["reset", "g"],
        ["reset", "g", "--to", "earliest", "--by", "1"],
        ["reset", "g", "--to", "soon", "--bootstrap", "127.0.0.1:1"],
        ["delete"],
    ],
)
def test_group_command_with_wrong_arguments_is_refused_with_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["group", *arguments]) == 2
    assert capsys.readouterr().err.startswith("oncelog: ")


@pytest.mark.parametrize("address", ["no-port", "", "a:b", "a:1,b:99999"])
@pytest.mark.parametrize("command", ["group list", "consume t", "bench replication", "why t/0"])
def test_command_with_an_invalid_bootstrap_address_is_refused_with_a_clear_message(
    command: str, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        run([*command.split(), "--bootstrap", address])
    assert left.value.code == 2
    told = capsys.readouterr()
    assert "for --bootstrap" in told.err and "Traceback" not in told.err


def test_command_interrupted_by_ctrl_c_prints_interrupted_and_exits_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(lookup, "bootstrap_line", interrupted)
    assert run(["group", "list"]) == 130
    assert capsys.readouterr().err == "oncelog: interrupted\n"


def test_command_interrupted_while_a_dataclass_is_made_exits_with_130(tmp_path: Path) -> None:
    """Python creates dataclasses with exec, and would exit by SIGINT after an interrupt in exec."""
    (tmp_path / "interrupted.py").write_text(
        "from oncelog.cli import main\n"
        "def build(width):\n    exec('raise KeyboardInterrupt')\n"
        "main.build = build\n"
        "main.main([])"
    )
    command = [sys.executable, "-m", "interrupted"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, b"oncelog: interrupted\n")


def test_command_interrupted_while_it_is_imported_exits_with_130(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'cyclopts':\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "oncelog.cli", "help"]
    ended = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, b"oncelog: interrupted\n")


def test_consumer_assignment_is_parsed_from_bytes_and_empty_for_malformed_bytes() -> None:
    assignment = b"\0\1\0\0\0\2\0\1u\0\0\0\1\0\0\0\7\0\1t\0\0\0\2\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
    assert assigned_partitions(assignment) == (("t", 0), ("t", 1), ("u", 7))
    assert assigned_partitions(b"") == ()
    for size in range(len(assignment) - 4):
        assert assigned_partitions(assignment[:size]) == ()
    assert assigned_partitions(b"\0\1\x7f\xff\xff\xff") == ()
