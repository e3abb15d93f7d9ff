"""Test the input files and lines of `oncelog produce`, and commands with closed streams."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from oncelog.cli.produce import _lines, _sources
from oncelog.deploy.cluster.failure import Failure


def lines_of(source: Path) -> list[bytes]:
    return [line for chunk in _lines(str(source)) for _, line in chunk]


def test_produce_source_is_accepted_as_a_named_pipe_and_refused_as_a_directory(
    tmp_path: Path,
) -> None:
    """Bash passes `oncelog produce orders <(generate)` a named pipe."""
    os.mkfifo(pipe := tmp_path / "pipe")
    assert _sources((pipe,)) == [str(pipe)]
    writing = threading.Thread(target=pipe.write_bytes, args=(b"a\nb\n",))
    writing.start()
    assert lines_of(pipe) == [b"a", b"b"]
    writing.join()
    for missing in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(Failure, match="is not a file"):
            _sources((missing,))


def test_produce_line_ending_in_several_carriage_returns_loses_only_the_last_one(
    tmp_path: Path,
) -> None:
    (file := tmp_path / "lines").write_bytes(b"a\r\nb\r\r\n\r\nc\r")
    assert lines_of(file) == [b"a", b"b\r", b"", b"c"]


def test_command_with_all_standard_streams_closed_exits_zero(tmp_path: Path) -> None:
    program = "from oncelog.cli.main import main; main(['profile', 'use'])"
    environment = {**os.environ, "ONCELOG_PROFILES": str(tmp_path / "profiles.json")}
    shell = f'exec "{sys.executable}" -c "{program}" <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", shell], env=environment, check=False).returncode == 0
    assert '"current": null' in (tmp_path / "profiles.json").read_text()


def test_produce_waiting_for_input_ends_at_ctrl_c() -> None:
    program = (
        "from oncelog.cli import produce; before = produce._lines\n"
        "def lines(source):\n    print('reads', flush=True)\n    yield from before(source)\n"
        "produce._lines = lines\n"
        "from oncelog.cli.main import main\n"
        "main(['produce', 'orders', '--bootstrap', '127.0.0.1:1'])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None and process.stdout.readline() == b"reads\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
            assert process.stderr is not None
            assert process.stderr.read() == b"oncelog: interrupted\n"
        finally:
            process.kill()
