"""A run that fails itself says nothing of the application."""

import time
from contextlib import ExitStack
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.prove.facts import Struck
from oncelog.deploy.prove.plan import AimedFault
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


def test_faults_are_made_as_long_as_was_asked_for() -> None:
    """What does not fit an application is drawn, and not made: it is no fault of 400."""
    made: list[AimedFault] = []

    def strike(fault: AimedFault) -> Struck:
        made.append(fault)
        return Struck(time.monotonic(), "", fault.name, fault.name)

    application = SimpleNamespace(instances=["one"])
    feeder = SimpleNamespace(fed=0, check=lambda: None)
    observed = SimpleNamespace(apis=frozenset(), worked_at_s=time.monotonic() + 600)
    run = Run(ProveSettings(command=("true",), seconds=30.0), None, lambda _: None)
    striker = SimpleNamespace(strike=strike, restarted=[])
    parts: Any = (striker, application, observed, feeder, None)
    assert len(list(islice(run._strike(*parts), 401))) == len(made) == 401
