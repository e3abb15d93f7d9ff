"""Test that a slow request keeps only its sender busy, and that a paused leader resumes."""

import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.faults.protocol_proxy.rules import Delay, Match
from oncelog.proof.prove.observed import wait_for
from oncelog.proof.prove.plan import FAULTS
from oncelog.proof.prove.strikes import lateness
from oncelog.proof.prove.strikes.lateness import LateStrikes

PRODUCE = Match(apis={"Produce"})


class OfferingProxy:
    """A proxy that, when a rule is added, applies it to one request of each instance."""

    def __init__(self, *instances: str) -> None:
        self.instances = list(instances)
        self.taken: list[tuple[str, Any]] = []

    def add(self, rule: Any) -> None:
        for instance in self.instances:
            if rule.match.fits(request_of(instance)):
                self.taken.append((instance, rule.action))

    def remove(self, rule: Any) -> None: ...


class PausableCluster:
    def __init__(self) -> None:
        self.done: list[str] = []

    def pause(self, broker: int) -> None:
        self.done.append(f"pause {broker}")

    def resume(self, broker: int) -> None:
        self.done.append(f"resume {broker}")

    def wait_for_isr(self) -> None:
        self.done.append("in sync")


def request_of(instance: str) -> Any:
    return SimpleNamespace(
        instance=instance, api="Produce", at_s=time.monotonic(), client_id="",
        connection=SimpleNamespace(broker_id=2), subjects=None,
        body=SimpleNamespace(transactional_id="t"),
    )  # fmt: skip


def late(proxy: OfferingProxy, cluster: Any = None, **seen: Callable[..., Any]) -> LateStrikes:
    observed = SimpleNamespace(
        **{"open_work": lambda _: 0, "has_gone_through": lambda *_: True, **seen}
    )
    return LateStrikes(
        cast(Any, proxy), cast(Any, observed), cluster, lambda: ["one", "two"],
        lambda holds, timeout_s: wait_for(holds, timeout_s), aim_s=0.05, seed=1,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lateness, "AWAKE_S", 0.01)
    monkeypatch.setattr(lateness, "HOLD_S", (0.05, 0.1))


def test_slow_request_fault_during_an_earlier_one_chooses_another_instance() -> None:
    proxy = OfferingProxy("one", "one", "two")
    made = late(proxy)
    fault = replace(FAULTS["slow@Produce"], seconds=0.3, side="answer")
    first, second = made.slow(fault, PRODUCE), made.slow(fault, PRODUCE)
    assert [who for who, _ in proxy.taken] == ["one", "two"]
    assert proxy.taken[0][1] == Delay(0.3, "answer")
    assert first and second and first.what == "Produce of one: its answer comes 0.3 s late"
    assert first.until_s == pytest.approx(first.at_s + 0.3) and first.met == 1
    begun_s = time.monotonic()
    made.wait_until_over()
    assert time.monotonic() - begun_s > 0.25


def test_fault_after_a_slow_request_waits_until_its_sender_committed() -> None:
    """Without the wait a kill would undo the effect of the slow request."""
    looks: list[tuple[str, float]] = []

    def has_gone_through(instance: str, since_s: float) -> bool:
        looks.append((instance, since_s))
        return len(looks) == 3

    made = late(OfferingProxy("two"), has_gone_through=has_gone_through)
    struck = made.slow(replace(FAULTS["slow@Produce"], seconds=0.1, side="answer"), PRODUCE)
    assert struck is not None
    made.wait_until_over()
    assert looks == [("two", struck.until_s)] * 3


def test_slow_request_fault_without_a_matching_request_is_reported_as_missed() -> None:
    assert late(OfferingProxy()).slow(FAULTS["slow@EndTxn"], Match(apis={"EndTxn"})) is None


def test_stalled_broker_fault_resumes_the_broker_at_its_end() -> None:
    cluster = PausableCluster()
    made = late(OfferingProxy(), cluster)
    _, what = made.stall(replace(FAULTS["stall@leader"], seconds=0.2), request_of("one"))
    assert what == "broker 2 (leader) stands still for 0 s, at the Produce of one"
    assert cluster.done == ["pause 2"]
    made.wait_until_over()
    made.wait_until_over()
    assert cluster.done == ["pause 2", "resume 2", "in sync"]


def test_run_waits_for_a_stalled_broker_fault_without_a_slow_request() -> None:
    """Without the wait the next fault could stop the only replica in sync."""
    cluster = PausableCluster()
    made = late(OfferingProxy(), cluster)
    made.stall(replace(FAULTS["stall@leader"], seconds=0.02), request_of("one"))
    assert made.slow(FAULTS["slow@EndTxn"], Match(apis={"EndTxn"})) is None
    assert cluster.done == ["pause 2", "resume 2"]
    made.wait_until_over()
    assert cluster.done == ["pause 2", "resume 2", "in sync"]


def test_stalled_broker_fault_that_stops_late_resumes_the_broker() -> None:
    class Slow(PausableCluster):
        def pause(self, broker: int) -> None:
            super().pause(broker)
            raise Failure("node 2 did not stop.")

    cluster = Slow()
    made = late(OfferingProxy(), cluster)
    with pytest.raises(Failure):
        made.stall(FAULTS["stall@leader"], request_of("one"))
    assert cluster.done == ["pause 2", "resume 2"]


@pytest.mark.parametrize(
    ("overtakes", "words"),
    [(True, "until its transaction had been committed"), (False, "and nothing overtook it")],
)
def test_held_produce_fault_waits_for_the_end_of_its_transaction(
    overtakes: bool, words: str
) -> None:
    made = late(OfferingProxy(), has_committed=lambda name, since_s: overtakes and name == "t")
    ending, what = made.hold(FAULTS["hold@Produce"], request_of("one"))
    assert ending is None and what.endswith(words)
