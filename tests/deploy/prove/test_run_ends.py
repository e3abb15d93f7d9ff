"""A run that fails itself says nothing of the application."""

from contextlib import ExitStack
from typing import Any

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.prove.run import Run
from oncelog.deploy.prove.settings import ProveSettings


def broken() -> None:
    raise ProcessLookupError("it has just ended")


@pytest.mark.parametrize("problem", [RuntimeError("a mistake"), OSError("no space")])
def test_what_a_run_meets_is_no_violation(
    problem: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def go(self: Run, stack: ExitStack) -> Any:
        raise problem

    monkeypatch.setattr(Run, "_go", go)
    with pytest.raises(Failure, match=str(problem)) as failed:
        Run(ProveSettings(command=("true",)), None, print).go()
    assert failed.value.exit_code == 2


def test_what_comes_to_light_when_all_is_closed_is_no_violation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def go(self: Run, stack: ExitStack) -> Any:
        stack.callback(broken)

    monkeypatch.setattr(Run, "_go", go)
    run = Run(ProveSettings(command=("true",)), None, print)
    with pytest.raises(Failure, match="it has just ended") as failed:
        run.go()
    assert failed.value.exit_code == 2 and not run.directory.exists()
