"""Test that a fault without a matching request ends, and affects no later request.

An idle instance is restarted, so that later faults find an active one.
"""

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.proof.prove import striking
from oncelog.proof.prove.plan import FAULTS, Timeouts
from oncelog.proof.prove.strikes import security
from oncelog.proof.prove.striking import Striker


class SoonMissed(Timeouts):
    @property
    def aim_s(self) -> float:
        return 0.05


class NoticingApplication:
    def __init__(self, *instances: str) -> None:
        self.instances = instances or ("instance-1",)
        self.struck: list[str] = []
        self.awake_s: dict[str, float] = {}  # seconds awake; others have just begun

    def kill(self, name: str) -> None:
        self.struck.append(f"kill {name}")

    def pause(self, name: str) -> None:
        self.struck.append(f"pause {name}")

    def restart(self, name: str) -> None:
        self.struck.append(f"restart {name}")
        self.awake_s[name] = 0.0

    def awake_since_s(self, name: str) -> float:
        return time.monotonic() - self.awake_s.get(name, 0.0)

    def resume(self, name: str) -> None:
        self.struck.append(f"resume {name}")

    def known_as(self, name: str) -> str:
        return name.removeprefix("instance-")

    def add(self, known_as: str) -> None:
        self.struck.append(f"add {known_as}")

    def replaced(self, name: str) -> None: ...

    def check(self) -> None: ...

    def ensure_running(self) -> None: ...


class LongPolls:
    """A proxy that holds a Fetch after its arrival, and answers when the test says so."""

    rule: Any = None

    def add(self, rule: Any) -> None:
        self.rule = rule

    def remove(self, rule: Any) -> None: ...

    def answer(self) -> Any:
        return self.rule.action.act(SimpleNamespace(instance="instance-1", api="Fetch"), object())


def striker_of(
    application: NoticingApplication,
    observed: Any,
    proxy: Any,
    *,
    timeouts: Timeouts | None = None,
    instances_max: int = 2,
) -> Striker:
    return Striker(
        proxy, cast(Any, application), observed, None, seed=1,
        inputs=frozenset("i"), outputs=frozenset("o"), timeouts=timeouts or SoonMissed(),
        instances_max=instances_max,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["kill@after-Fetch", "pause-at-work"])
def test_fetch_fault_answered_after_its_deadline_has_no_effect(name: str) -> None:
    application, polls = NoticingApplication(), LongPolls()
    observed = SimpleNamespace(
        brings_inputs=lambda _: True, open_work=lambda _: 0, silent_since_s=lambda _: None
    )
    striker = striker_of(application, observed, polls)
    assert not striker.strike(FAULTS[name]).is_made
    assert polls.answer() is None
    assert application.struck == []


LONG_S = 10 * SoonMissed().silent_s


def test_silent_instance_is_restarted_and_takes_over_from_a_paused_instance() -> None:
    """A crashed consumer in a live process (kafkajs) would not take over partitions."""
    application = NoticingApplication("paused", "crashed", "waits", "starts")
    application.awake_s = dict.fromkeys(("paused", "crashed", "waits"), LONG_S)
    observed = SimpleNamespace(
        silent_since_s=lambda name: None if name == "waits" else time.monotonic() - LONG_S,
        had=lambda *_: frozenset(),
        is_in_transaction=lambda _: True,
        has_gone_on=lambda *_: "restart crashed" in application.struck,
    )
    striker = striker_of(application, observed, LongPolls())
    assert "its group continued without it" in striker._paused("paused", "before its OffsetCommit")
    assert application.struck == ["pause paused", "restart crashed", "resume paused"]
    assert striker.restarted == ["crashed"]


@pytest.mark.parametrize("name", ["slow@Produce", "error@Produce"])
def test_produce_with_acks_zero_is_never_delayed_or_refused_by_a_fault(name: str) -> None:
    """Such a fault would count as injected, but it has no effect."""
    striker = striker_of(NoticingApplication(), SimpleNamespace(), LongPolls())

    def produce(acks: int) -> Any:
        subjects = SimpleNamespace(topics={"o"})
        return SimpleNamespace(api="Produce", subjects=subjects, body=SimpleNamespace(acks=acks))

    match = striker._match(FAULTS[name])
    assert [match.fits(produce(acks)) for acks in (-1, 1, 0)] == [True, True, False]


def test_pause_before_a_heartbeat_ignores_heartbeats_that_omit_their_partitions() -> None:
    striker = striker_of(NoticingApplication(), SimpleNamespace(), LongPolls())
    match = striker._match(FAULTS["pause@before-heartbeat"])

    def fits(owned: Any) -> bool:
        body = SimpleNamespace(topic_partitions=owned)
        subjects = SimpleNamespace(topics=set())
        asked: Any = SimpleNamespace(api="ConsumerGroupHeartbeat", body=body, subjects=subjects)
        return match.fits(asked)

    assert [fits(owned) for owned in (None, (), ("t",))] == [False, True, True]


def test_fault_after_a_refusal_waits_until_the_refused_instance_has_continued() -> None:
    """A wrong application skips a refused record a moment later.

    A leader paused at that moment would hide this.
    """
    looks: list[str] = []

    def has_gone_through(instance: str, since_s: float) -> bool:
        looks.append(instance)
        return len(looks) == 3

    class Refusing(LongPolls):
        def made(self, rule: Any) -> int:
            subjects = SimpleNamespace(topics={"o"})
            rule.match.fits(SimpleNamespace(
                api="Produce", instance="instance-1", client_id="", subjects=subjects,
                body=SimpleNamespace(acks=-1), at_s=time.monotonic(),
            ))  # fmt: skip
            return 1

    observed = SimpleNamespace(
        open_work=lambda _: 1, silent_since_s=lambda _: None, has_gone_through=has_gone_through
    )
    striker = striker_of(NoticingApplication(), observed, Refusing())
    struck = striker.strike(FAULTS["error@Produce"])
    assert struck.is_made and looks == ["instance-1"] * 3


class ExpiringProxy(LongPolls):
    """A proxy whose new connections fail while it presents an expired certificate."""

    def __init__(self) -> None:
        self.handshakes = 0

    def present(self, *, is_expired: bool) -> None: ...

    def disconnect(self, instance: str) -> int:
        return 1

    def failed_handshakes(self, instance: str) -> int:
        self.handshakes += 1
        return self.handshakes


@pytest.mark.parametrize(
    ("is_in_transaction", "awake_s", "is_stuck"),
    [(True, LONG_S, True), (False, LONG_S, False), (True, 0.0, False)],  # the last has just begun
)
def test_refused_instance_that_stays_in_its_transaction_is_restarted(
    is_in_transaction: bool, awake_s: float, is_stuck: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed login librdkafka may wait forever in commit_transaction."""
    monkeypatch.setattr(security, "LASTS_S", (0.0, 0.0))
    application = NoticingApplication()
    application.awake_s["instance-1"] = awake_s
    observed = SimpleNamespace(
        open_work=lambda _: 2, silent_since_s=lambda _: None,
        has_gone_through=lambda *_: False, is_in_transaction=lambda _: is_in_transaction,
    )  # fmt: skip
    timeouts = SoonMissed(session_s=0.05)
    striker = striker_of(application, observed, ExpiringProxy(), timeouts=timeouts)
    struck = striker.strike(FAULTS["certificate-expires"])
    assert struck.is_made and striker.woken_s > struck.at_s
    assert application.struck == (["restart instance-1"] if is_stuck else [])
    assert ("was restarted by prove" in struck.what) is is_stuck


def test_rebalance_of_a_single_process_is_provoked_by_its_restart() -> None:
    application = NoticingApplication()
    striker = striker_of(application, SimpleNamespace(), LongPolls(), instances_max=1)
    striker._provoke_rebalance()
    assert application.struck == ["restart instance-1"]


def paused_once(monkeypatch: pytest.MonkeyPatch, instances_max: int) -> tuple[list[str], str, bool]:
    """Pause the only instance of an application whose session timeout is 0.

    Return the actions on the application, the sentence about the pause, and whether the striker
    recorded the resumption.
    """
    monkeypatch.setattr(striking, "SETTLE_S", 0.0)
    application = NoticingApplication()
    observed = SimpleNamespace(
        had=lambda *_: frozenset(), is_in_transaction=lambda _: False, has_gone_on=lambda *_: True
    )
    striker = striker_of(
        application, observed, LongPolls(), timeouts=SoonMissed(session_s=0.0),
        instances_max=instances_max,
    )  # fmt: skip
    begun_s = time.monotonic()
    what = striker._paused("instance-1", "just before its OffsetCommit")
    return application.struck, what, striker.woken_s >= begun_s


def test_pause_of_a_single_process_starts_no_second_instance_and_lasts_for_the_session_timeout(
    monkeypatch,
) -> None:
    struck, what, is_given_time = paused_once(monkeypatch, instances_max=1)
    assert struck == ["pause instance-1", "resume instance-1"] and is_given_time
    assert "no member took its place" in what


def test_pause_of_the_only_instance_of_a_group_starts_a_second_instance(monkeypatch) -> None:
    struck, what, _ = paused_once(monkeypatch, instances_max=3)
    assert struck == ["pause instance-1", "add 1", "resume instance-1"]
    assert "its group continued without it" in what
