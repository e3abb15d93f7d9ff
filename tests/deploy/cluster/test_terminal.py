"""Test how a terminal wraps lines, drops columns, and repeats the line of a long step."""

import os
import sys

import pytest

from oncelog.deploy.cluster import terminal
from oncelog.deploy.cluster.terminal import LoopLines, fitted, never_silent, wrapped

from ...waiting import until


@pytest.mark.parametrize(
    ("line", "width", "expected"),
    [
        ("one two three", None, "one two three"),
        ("one two three", 13, "one two three"),
        ("one two three", 8, "one two\n  three"),
        ("  one two three", 12, "  one two\n    three"),
        ("held by  one two three", 30, "held by  one two three"),
        ("on  one two three four five six", 20, "on  one two three\n    four five six"),
        ("127.0.0.1:9092,127.0.0.1:9093", 20, "127.0.0.1:9092,127.0.0.1:9093"),
        ("ready at 127.0.0.1:9092,127.0.0.1:9093", 20, "ready at\n  127.0.0.1:9092,127.0.0.1:9093"),
    ],
)
def test_terminal_line_wider_than_the_screen_is_wrapped_between_words(
    line: str, width: int | None, expected: str
) -> None:
    assert wrapped(line, width) == expected


HEADINGS = {"id": "ID", "why": "WHY IT IS SO", "n": "COUNT"}
CELLS = [{"id": "billing-worker", "why": "its producer is gone", "n": "12345"}]


@pytest.mark.parametrize(
    ("width", "optional", "expected"),
    [
        (None, (), {"id": 14, "why": 20, "n": 5}),
        (47, (), {"id": 14, "why": 20, "n": 5}),
        (46, (), None),
        (46, ("n",), {"id": 14, "why": 20}),
        (30, ("n", "why"), {"id": 14}),
        (10, ("n", "why"), None),
    ],
)
def test_table_too_wide_for_the_terminal_drops_only_optional_columns(
    width, optional, expected
) -> None:
    assert fitted(HEADINGS, CELLS, width, optional) == expected


def test_table_with_a_long_sentence_wraps_the_sentence_and_drops_no_column() -> None:
    cells = [{**CELLS[0], "why": "its producer is gone and nobody knows when it comes again"}]
    assert fitted(HEADINGS, cells, 60, ("n",)) == {"id": 14, "why": 33, "n": 5}


def test_last_progress_line_is_printed_again_after_each_interval_of_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr(terminal, "say", said.append)
    with never_silent(0.02) as told:
        told("draining")
        until(lambda: any(line.startswith("still: draining (") for line in said))
        told("judging")
        until(lambda: any(line.startswith("still: judging (") for line in said))
    assert said[0] == "draining"


@pytest.mark.parametrize("character", ["\u200b", "\U0010ffff"])
def test_loop_lines_for_a_full_pipe_are_left_out_and_counted(
    character: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as reader, open(writing, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        lines = LoopLines()
        for _ in range(300):
            lines.tell(character * 1_000)
        stdout.close()
        printed = reader.read().splitlines()
    assert 10 < len(printed) < 300
    lines.report_missing()
    assert f"{300 - len(printed)} lines are missing here" in capsys.readouterr().err
