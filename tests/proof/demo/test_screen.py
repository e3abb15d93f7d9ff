"""Test the demo's progress output with and without a terminal."""

import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.proof.demo import report
from oncelog.proof.demo.report import Screen

from ...waiting import until


@pytest.mark.parametrize("is_live", [False, True])
def test_demo_screen_shows_the_current_wait(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_live: bool
) -> None:
    monkeypatch.setattr(report, "TICK_S", 0.01)
    monkeypatch.setattr(report, "SILENCE_MAX_S", 0.02)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_live)
    monkeypatch.setenv("COLUMNS", "80")
    said = ""

    def is_said(*words: str) -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return all(word in said for word in words)

    screen = Screen(7, "none", "", "")
    until(lambda: is_said("the nodes start"))
    stream = SimpleNamespace(handed_over=1_000, acknowledged=range(900))
    screen.follow(cast(Any, stream), cast(Any, SimpleNamespace(outputs=lambda: 800)))
    screen.doing("draining")
    until(lambda: is_said("draining, 1,000 flights", "800 enriched"))
    screen.end()
    assert is_said("read back and judged") and ("\x1b[K" in said) is is_live
    lines = [line for line in said.replace("\r\x1b[K", "\n").split("\n") if line]
    assert max(map(len, lines)) <= 80
