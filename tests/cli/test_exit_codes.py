"""Test that the exit codes of a verdict are used for verdicts only."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from oncelog.cli import bench, main
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.proof.chaos.run import ChaosRun
from oncelog.proof.demo.transfers.run import TransfersReport
from oncelog.proof.judge.analysis.findings import Anomaly, Finding
from oncelog.proof.prove import api
from oncelog.proof.prove.judgement import Judgement, verdict_of
from oncelog.proof.prove.outcome import ProveOutcome
from oncelog.proof.prove.run import Run
from oncelog.proof.prove.settings import ProveSettings

DEMO, PROVE = ["demo", "--job", "transfers"], ["prove", "--", "true"]
PROBLEMS = [Failure, OSError, BrokenPipeError, ZeroDivisionError]


@pytest.fixture
def closed() -> Iterator[TextIO]:
    """Yield a stream whose reader is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as stream:
        yield stream


@pytest.fixture
def violated(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Anomaly("lost", "W1", "lost records")
    report = TransfersReport(1, "none", "sqlite", at_the_end=(Finding(lost, 1, ()),))
    monkeypatch.setattr(bench, "_judged", lambda _, screen, __: screen.close() or report)
    judgement = Judgement(doubled={"r-7": 1})
    settings, verdict = ProveSettings(command=("true",)), verdict_of(judgement, 1)
    outcome = ProveOutcome(settings=settings, verdict=verdict, judgement=judgement, struck=())
    monkeypatch.setattr(Run, "go", lambda _: outcome)


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("command", [DEMO, PROVE, ["chaos", "run", "--out"]], ids=lambda c: c[0])
def test_judging_command_with_an_error_of_its_run_exits_two(
    command: list[str],
    kind: type[Exception],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def wrong(_: object) -> None:
        raise kind("a mistake")

    for owner, method in ((Cluster, "up"), (Run, "go"), (ChaosRun, "go")):
        monkeypatch.setattr(owner, method, wrong)
    assert main.run([*command, *([str(tmp_path / "out")] * (command[-1] == "--out"))]) == 2
    told = capsys.readouterr().err
    assert ("Traceback" in told) == (kind is ZeroDivisionError) and "oncelog: a mistake" in told


@pytest.mark.parametrize("format", ["table", "json"])
@pytest.mark.parametrize("command", [DEMO, PROVE], ids=lambda c: c[0])
def test_judging_command_with_a_closed_stdout_keeps_its_exit_code(
    command: list[str],
    format: str,
    closed: TextIO,
    violated: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", closed)
    assert main.run([command[0], "--format", format, *command[1:]]) == 1


def test_prove_whose_stderr_is_closed_after_a_violation_does_not_exit_zero(
    violated: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(api, "shrunk", wrong)
    assert main.run([PROVE[0], "--shrink", *PROVE[1:]]) == 2


@pytest.mark.parametrize("command", [DEMO, PROVE], ids=lambda c: c[0])
def test_judging_command_with_a_closed_stderr_exits_two(
    command: list[str], closed: TextIO, violated: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", closed)
    assert main.run(command) == 2
