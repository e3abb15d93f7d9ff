"""Test that a run that fails itself gives no verdict on the application."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import islice, pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.proof.prove import run as run_module
from oncelog.proof.prove.application import Application
from oncelog.proof.prove.facts import Struck
from oncelog.proof.prove.plan import AIM_MIN_S, AimedFault, Timeouts, Traits, sure_ones
from oncelog.proof.prove.run import DRAIN_MIN_S, RUN_ENDS_WITHIN_S, STOP_S, Run
from oncelog.proof.prove.settings import ProveSettings
from oncelog.proof.prove.strikes.lateness import GO_ON_S


def broken() -> None:
    raise ProcessLookupError("it has just ended")


@pytest.mark.parametrize("problem", [RuntimeError("a mistake"), OSError("no space")])
def test_prove_run_with_an_error_inside_reports_no_violation(
    problem: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def go(self: Run, stack: ExitStack) -> Any:
        raise problem

    monkeypatch.setattr(Run, "_go", go)
    with pytest.raises(Failure, match=str(problem)) as failed:
        Run(ProveSettings(command=("true",)), None, print).go()
    assert failed.value.exit_code == 2


def test_prove_run_with_an_error_at_its_close_reports_no_violation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def go(self: Run, stack: ExitStack) -> Any:
        stack.callback(broken)

    monkeypatch.setattr(Run, "_go", go)
    run = Run(ProveSettings(command=("true",)), None, print)
    with pytest.raises(Failure, match="it has just ended") as failed:
        run.go()
    assert failed.value.exit_code == 2 and not run.directory.exists()


def test_prove_run_with_time_left_makes_more_than_400_faults() -> None:
    """A drawn fault that does not apply to the application does not count toward FAULTS_MAX."""
    made: list[AimedFault] = []

    def strike(fault: AimedFault) -> Struck:
        made.append(fault)
        return Struck(time.monotonic(), "", fault.name, fault.name)

    application = SimpleNamespace(instances=["one"])
    feeder = SimpleNamespace(fed=0, check=lambda: None)
    observed = SimpleNamespace(apis=frozenset(), worked_at_s=time.monotonic() + 600)
    run = Run(ProveSettings(command=("true",), seconds=30.0), None, lambda _: None)
    late = SimpleNamespace(wait_until_over=lambda: None, until_s=0.0)
    striker = SimpleNamespace(strike=strike, restarted=[], late=late, woken_s=0.0)
    parts: Any = (striker, application, observed, feeder, lambda: Traits(frozenset(), 1))
    assert len(list(islice(run._strike(*parts), 401))) == len(made) == 401


def test_prove_run_restarts_a_stalled_application_again_only_after_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The restarted instances have started and joined their group only after some seconds."""
    now_s, restarted_s = [0.0], list[float]()
    monkeypatch.setattr(run_module, "time", SimpleNamespace(monotonic=lambda: now_s[0]))

    def strike(fault: AimedFault) -> Struck:
        now_s[0] += 1.0
        return Struck(now_s[0], "", fault.name, fault.name)

    def restart() -> None:
        now_s[0] += 10.0  # an instance that does not end by SIGTERM
        restarted_s.append(now_s[0])

    late = SimpleNamespace(wait_until_over=lambda: None, until_s=0.0)
    parts: Any = (
        SimpleNamespace(strike=strike, restarted=[], late=late, woken_s=0.0),
        SimpleNamespace(instances=["one"], restart_all=restart),
        SimpleNamespace(apis=frozenset(), worked_at_s=0.0),
        SimpleNamespace(fed=0, check=lambda: None),
        lambda: Traits(frozenset(), 1),
    )
    faults = ",".join(["kill-at-work"] * 30)
    run = Run(ProveSettings(command=("true",), seconds=60.0, faults=faults), None, lambda _: None)
    list(run._strike(*parts))
    pauses_s = [after - before for before, after in pairwise(restarted_s)]
    assert pauses_s and min(pauses_s) > Timeouts().still_s + 10.0


@pytest.mark.parametrize("faults", [None, "kill-at-work"])
def test_prove_run_with_named_faults_reports_only_these_as_not_tested(faults: str | None) -> None:
    settings = ProveSettings(command=("true",), seconds=30.0, faults=faults)
    run = Run(settings, None, lambda _: None)
    traits = Traits(frozenset(("Produce", "EndTxn")), 1)
    ended: Any = SimpleNamespace(fed=run_module.INPUTS_MAX)
    nothing: Any = None
    assert not list(run._strike(nothing, nothing, nothing, ended, lambda: traits))
    assert len(run._sure) > 1 if faults is None else run._sure == [faults]


class Clock:
    """A run of faults with a clock that only the faults advance."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.made = 0.0, list[AimedFault]()
        monkeypatch.setattr(run_module, "time", SimpleNamespace(monotonic=lambda: self.now_s))

    def run(
        self, seed: int, seconds: float, lasts_s: Callable[[AimedFault], float], is_made: bool
    ) -> None:
        """Inject the faults of a run, each of which takes `lasts_s`.

        `is_made` says whether a fault has an effect. A fault without one is reported as missed.
        """

        def strike(fault: AimedFault) -> Struck:
            self.made.append(fault)
            self.now_s += lasts_s(fault)
            return Struck(self.now_s, "", fault.name, fault.name, is_made=is_made)

        apis = frozenset(("Produce", "EndTxn", "TxnOffsetCommit", "OffsetFetch"))
        parts: Any = (
            SimpleNamespace(
                strike=strike, restarted=[],
                late=SimpleNamespace(wait_until_over=lambda: None, until_s=1e9),
                woken_s=0.0,
            ),
            SimpleNamespace(instances=["one", "two"]),
            SimpleNamespace(apis=apis, worked_at_s=0.0),
            SimpleNamespace(fed=0, check=lambda: None),
            lambda: Traits(apis, 2, True),
        )  # fmt: skip
        run = Run(
            ProveSettings(command=("true",), seconds=seconds, seed=seed), None, lambda _: None
        )
        list(run._strike(*parts))


@pytest.mark.parametrize("seed", range(7))
def test_prove_run_makes_fixed_faults_when_time_ends_inside_a_fault_sequence(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    clock.run(seed, 10.0, lambda fault: 1.0 if fault.sure_tries else 12.0, is_made=True)
    traits = Traits(frozenset(("Produce", "EndTxn", "TxnOffsetCommit", "OffsetFetch")), 2, True)
    sure = [fault for group in sure_ones(seed, 10.0, traits, 2) for fault in group]
    assert sure and [fault for fault in clock.made if fault.sure_tries] == sure


@pytest.mark.parametrize("seconds", [10.0, 60.0, 120.0, 300.0])
def test_prove_run_ends_its_faults_early_enough_for_the_drain(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(10):
        clock = Clock(monkeypatch)
        clock.run(seed, seconds, lambda fault: AIM_MIN_S + fault.seconds, is_made=False)
        assert clock.now_s - seconds + GO_ON_S + DRAIN_MIN_S + STOP_S <= RUN_ENDS_WITHIN_S


@pytest.mark.parametrize("late_s", [-60.0, 0.0, 30.0, 75.0])
def test_prove_run_drain_ends_in_time_however_long_the_faults_took(late_s: float) -> None:
    run = Run(ProveSettings(command=("true",)), None, print)
    pace = run._pace(time.monotonic() - late_s)
    assert 20 <= pace.timeout_s <= 60
    assert late_s + pace.timeout_s + 20 <= RUN_ENDS_WITHIN_S


def test_prove_run_drain_is_longer_on_request_or_for_slow_starts() -> None:
    run = Run(ProveSettings(command=("true",), drain_timeout_s=300.0), None, print)
    assert run._pace(time.monotonic() - 60).timeout_s > 250
    run = Run(ProveSettings(command=("true",)), None, print)
    run._timeouts = Timeouts(start_s=60.0)
    assert run._pace(time.monotonic() - 90).timeout_s > 150
    run._timeouts = Timeouts(start_s=20.0)
    pace = run._pace(time.monotonic())
    assert pace.timeout_s > pace.rest_s + Application.stop_timeout_s + pace.silence_s  # a restart


def test_prove_run_without_given_inputs_names_the_default_input_topic() -> None:
    run = Run(ProveSettings(command=("true",), outputs=("invoices",)), None, print)
    assert run._defaults() == " --in was not given: ONCELOG_IN is prove-in."


def test_prove_run_of_a_missing_program_fails_before_anything_is_started() -> None:
    with pytest.raises(Failure, match="no program 'no-such-program'"):
        Run(ProveSettings(command=("no-such-program",)), None, print)
