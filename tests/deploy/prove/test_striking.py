"""A fault that has missed is over: a request that was on its way meets nothing."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.deploy.prove.plan import FAULTS
from oncelog.deploy.prove.striking import Striker, Timeouts


class SoonMissed(Timeouts):
    @property
    def aim_s(self) -> float:
        return 0.05


class NoticingApplication:
    instances = ("instance-1",)

    def __init__(self) -> None:
        self.struck: list[str] = []

    def kill(self, name: str) -> None:
        self.struck.append(f"kill {name}")

    def pause(self, name: str) -> None:
        self.struck.append(f"pause {name}")

    def check(self) -> None: ...

    def ensure_running(self) -> None: ...


class LongPolls:
    """A proxy whose Fetch is bound to the rule when it is sent, and answered when asked."""

    rule: Any = None

    def add(self, rule: Any) -> None:
        self.rule = rule

    def remove(self, rule: Any) -> None: ...

    def answer(self) -> Any:
        return self.rule.action.act(SimpleNamespace(instance="instance-1", api="Fetch"), object())


@pytest.mark.parametrize("name", ["kill@after-Fetch", "pause-at-work"])
def test_a_fetch_that_is_answered_after_its_fault_has_missed_meets_nothing(name: str) -> None:
    application, polls = NoticingApplication(), LongPolls()
    observed = SimpleNamespace(brings_inputs=lambda _: True, open_work=lambda _: 0)
    striker = Striker(
        cast(Any, polls), cast(Any, application), cast(Any, observed), None, seed=1,
        inputs=frozenset("i"), outputs=frozenset("o"), timeouts=SoonMissed(), instances_max=2,
    )  # fmt: skip
    assert not striker.strike(FAULTS[name]).is_made
    assert polls.answer() is None
    assert application.struck == []
