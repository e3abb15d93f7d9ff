"""Test that mode "transactional" revokes decisions, and how the sink chooses its mode.

A child is the transaction of one task attempt, which may time out in this mode.
"""

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from oncelog.client import PreparedTransaction
from oncelog.client.cluster_view import BrokerNode, ClusterSnapshot
from oncelog.client.transaction_admin import DescribedTransaction
from oncelog.pipeline.sink.batch_check import Terms
from oncelog.pipeline.sink.checks import settle_mode
from oncelog.pipeline.sink.child_requests import standing
from oncelog.pipeline.sink.decision import Decision, decode, encode
from oncelog.pipeline.sink.login import ClusterLogin
from oncelog.pipeline.sink.modes import BrokerAnswers, Mode, choose_mode, mode_in_words
from oncelog.pipeline.sink.protocol import SinkProtocol
from oncelog.pipeline.sink.sink import ExactlyOnceSink
from oncelog.pipeline.sink.steps import (
    AbortChildren,
    BatchGiven,
    BatchOver,
    ChildrenAborted,
    ChildrenCommitted,
    ChildrenDescribed,
    ChildrenRefused,
    CommitChildren,
    ControlCommitted,
    ControlInDoubt,
    DecisionRead,
    DescribeChildren,
    ListOpen,
    OpenListed,
    RollBackChildren,
    RunTasks,
    TasksDone,
    WriteDecision,
)
from oncelog.pipeline.sink.stop_words import SinkStopped
from oncelog.pipeline.sink.task import Attempt, TaskSpec
from oncelog.wire.errors import RequestTimedOut

from .test_protocol import child, decided, feed, given, report, start

CHILDREN = (child(0), child(1), child(2))
NAMES = tuple(each.transactional_id for each in CHILDREN)
FOUND = decided(3, *CHILDREN, times_out=True)
BATCH = given(3)
UNDONE = Decision(generation=2, query_id="q", batch_id=2)


def at_start(
    found: Decision = FOUND,
    first: BatchGiven = BATCH,
    mode: Mode = Mode.TRANSACTIONAL,
    terms: Terms | None = None,
) -> tuple[SinkProtocol, Any]:
    protocol = SinkProtocol("s", mode=mode, terms=terms)
    return protocol, start(protocol, found, first, *NAMES)


def reported() -> tuple[SinkProtocol, Any]:
    """Return a protocol after all tasks of a batch have reported, and its next effect."""
    protocol = SinkProtocol("s", mode=Mode.TRANSACTIONAL)
    start(protocol, None, given(0))
    assert feed(protocol, ChildrenCommitted(), ChildrenAborted()) == RunTasks(1, 0, ())
    return protocol, protocol.step(TasksDone(tuple(map(report, range(3)))))


def test_transactional_sink_describes_its_children_before_and_after_the_decision() -> None:
    protocol, effect = reported()
    assert effect == DescribeChildren(CHILDREN)
    decision = decided(0, *CHILDREN, times_out=True)
    assert protocol.step(ChildrenDescribed(NAMES)) == WriteDecision(decision)
    assert protocol.step(ControlCommitted()) == DescribeChildren(CHILDREN)
    assert protocol.step(ChildrenDescribed(NAMES)) == CommitChildren(CHILDREN, times_out=True)
    effect = feed(protocol, ChildrenCommitted(), OpenListed(()), ChildrenAborted())
    assert effect == WriteDecision(decision.done())
    assert protocol.step(ControlCommitted()) == BatchOver(was_written=True)


@pytest.mark.parametrize(
    ("found", "late"),
    [
        (ChildrenDescribed(NAMES[:2], ended=NAMES[2:]), 1),
        (ChildrenDescribed(NAMES, expiring=NAMES[1:]), 2),
        (ChildrenDescribed(()), 3),
    ],
)
def test_transactional_sink_batch_beyond_its_timeout_is_not_decided(
    found: ChildrenDescribed, late: int
) -> None:
    protocol, _ = reported()
    assert protocol.step(found) == ListOpen()
    assert protocol.step(OpenListed(NAMES[:1])) == AbortChildren(NAMES[:1])
    with pytest.raises(SinkStopped, match=f"was not decided: {late} of the 3 transactions"):
        protocol.step(ChildrenAborted())


def test_transactional_sink_at_a_start_commits_all_children_if_all_are_open() -> None:
    protocol, effect = at_start()
    assert effect == DescribeChildren(CHILDREN)
    assert protocol.step(ChildrenDescribed(NAMES)) == CommitChildren(CHILDREN, times_out=True)
    assert feed(protocol, ChildrenCommitted(), ChildrenAborted()) == BatchOver(was_written=False)


@pytest.mark.parametrize("mode", Mode)
def test_transactional_sink_with_a_child_timed_out_and_none_committed_revokes_the_decision(
    mode: Mode,
) -> None:
    protocol, _ = at_start(mode=mode)  # the mode may change from start to start
    effect = protocol.step(ChildrenDescribed(NAMES[1:], ended=NAMES[:1]))
    assert effect == RollBackChildren(CHILDREN[1:])
    assert protocol.step(ChildrenAborted()) == WriteDecision(UNDONE)
    assert protocol.step(ControlCommitted()) == AbortChildren(NAMES)
    effect = protocol.step(ChildrenAborted())
    if mode is not Mode.DRIVER:
        assert effect == RunTasks(2, 3, ())


def test_transactional_sink_with_a_child_already_committed_keeps_the_decision() -> None:
    protocol, _ = at_start()
    effect = protocol.step(ChildrenDescribed(NAMES[2:], ended=NAMES[:1]))
    assert effect == CommitChildren(CHILDREN, times_out=True)
    alarm = replace(FOUND, generation=2, lost=NAMES[:1], is_done=True)
    assert protocol.step(ChildrenRefused(NAMES[:1], "PRODUCER_FENCED")) == WriteDecision(alarm)
    with pytest.raises(SinkStopped, match=r"BATCH 3 IS TORN .* 2 are known"):
        protocol.step(ControlCommitted())
    protocol = SinkProtocol("s", mode=Mode.TRANSACTIONAL)
    protocol.step(given(3))
    with pytest.raises(SinkStopped, match=r"BATCH 3 IS TORN .* say first_batch=4"):
        protocol.step(DecisionRead(alarm))
    protocol, effect = at_start(alarm, terms=Terms(first_batch=4))
    assert effect == CommitChildren((), times_out=True)
    assert feed(protocol, ChildrenCommitted(), ChildrenAborted()) == BatchOver(was_written=False)


def test_transactional_sink_with_a_child_committed_in_the_rollback_keeps_a_found_decision() -> None:
    protocol, _ = at_start()
    protocol.step(ChildrenDescribed(NAMES[1:], ended=NAMES[:1]))
    effect = protocol.step(ChildrenRefused(NAMES[1:2], "INVALID_TXN_STATE"))
    assert effect == CommitChildren(CHILDREN, times_out=True)


DECIDED = (ChildrenDescribed(NAMES), ControlCommitted())


@pytest.mark.parametrize("is_in_doubt", [False, True])
def test_transactional_sink_describes_again_after_its_decision_and_revokes_it_after_a_timeout(
    is_in_doubt: bool,
) -> None:
    protocol, _ = reported()
    events: tuple[Any, ...] = DECIDED
    if is_in_doubt:
        found = DecisionRead(decided(0, *CHILDREN, times_out=True))
        events = (ChildrenDescribed(NAMES), ControlInDoubt("timed out"), found)
    assert feed(protocol, *events) == DescribeChildren(CHILDREN)
    effect = protocol.step(ChildrenDescribed(NAMES[1:], ended=NAMES[:1]))
    assert effect == RollBackChildren(CHILDREN[1:])
    assert protocol.step(ChildrenAborted()) == WriteDecision(Decision(generation=1, query_id="q"))
    assert protocol.step(ControlCommitted()) == AbortChildren(())
    assert protocol.step(ChildrenAborted()) == RunTasks(1, 0, ())
    effect = protocol.step(TasksDone(tuple(map(report, range(3)))))
    effect = feed(protocol, *DECIDED, ChildrenDescribed(NAMES))
    assert effect == CommitChildren(CHILDREN, times_out=True)
    effect = feed(protocol, ChildrenCommitted(), OpenListed(()), ChildrenAborted())
    assert effect == WriteDecision(decided(0, *CHILDREN, times_out=True).done())


def test_transactional_sink_with_a_child_committed_in_the_rollback_keeps_its_new_decision() -> None:
    protocol, _ = reported()
    feed(protocol, *DECIDED, ChildrenDescribed(NAMES[1:], ended=NAMES[:1]))
    effect = protocol.step(ChildrenRefused(NAMES[1:2], "INVALID_TXN_STATE"))
    assert effect == CommitChildren(CHILDREN, times_out=True)
    effect = protocol.step(ChildrenRefused(NAMES[:1], "PRODUCER_FENCED"))
    assert isinstance(effect, WriteDecision)
    assert effect.decision.lost == NAMES[:1]
    with pytest.raises(SinkStopped, match=r"BATCH 0 IS TORN"):
        protocol.step(ControlCommitted())


def test_transactional_sink_with_all_children_refused_revokes_the_decision_of_its_own_run() -> None:
    protocol, _ = reported()
    feed(protocol, *DECIDED, ChildrenDescribed(NAMES))
    effect = protocol.step(ChildrenRefused(NAMES, "PRODUCER_FENCED"))
    assert effect == WriteDecision(Decision(generation=1, query_id="q"))
    assert protocol.step(ControlCommitted()) == AbortChildren(())
    assert protocol.step(ChildrenAborted()) == RunTasks(1, 0, ())


def test_transactional_sink_with_a_checkpoint_older_than_a_revoked_decision_stops() -> None:
    protocol = SinkProtocol("s", mode=Mode.TRANSACTIONAL)
    before = decided(2, digest="planned")
    start(protocol, before, replace(given(3), digest="next"))
    feed(protocol, ChildrenCommitted(), ChildrenAborted())
    feed(protocol, TasksDone(tuple(map(report, range(3)))), *DECIDED, ChildrenDescribed(NAMES))
    effect = protocol.step(ChildrenRefused(NAMES, "PRODUCER_FENCED"))
    assert isinstance(effect, WriteDecision)
    assert effect.decision == Decision(generation=2, query_id="q", batch_id=2, digest="planned")
    assert decode("s", dict(encode("s", effect.decision))) == effect.decision
    late = SinkProtocol("s", mode=Mode.TRANSACTIONAL)
    late.step(replace(given(2), digest="planned anew"))
    with pytest.raises(SinkStopped, match="has planned it anew"):
        late.step(DecisionRead(effect.decision))


def test_transactional_sink_revocation_without_an_answer_stops_the_driver() -> None:
    protocol, _ = at_start()
    feed(protocol, ChildrenDescribed((), ended=NAMES), ChildrenAborted())
    with pytest.raises(SinkStopped, match="were aborted before one was committed, and another"):
        protocol.step(ControlInDoubt("90"))


@pytest.mark.parametrize(
    ("found", "first", "terms", "refused"),
    [
        (FOUND, BATCH, None, ChildrenRefused(NAMES, "forgotten", NAMES[:1])),
        (FOUND, BATCH, None, ChildrenRefused(NAMES[1:], "90")),
        # Spark will not have these written again.
        (FOUND, given(0, "other"), Terms(replaces_query="q"), ChildrenRefused(NAMES, "90")),
        (FOUND, given(4), None, ChildrenRefused(NAMES, "90")),
        (decided(3, *CHILDREN), BATCH, None, ChildrenRefused(NAMES, "90")),
    ],
)
def test_transactional_sink_with_refused_children_of_a_batch_not_written_again_raises_an_alarm(
    found: Decision, first: BatchGiven, terms: Terms | None, refused: ChildrenRefused
) -> None:
    protocol, effect = at_start(found, first, terms=terms)
    if found.times_out:
        assert isinstance(effect, DescribeChildren)
        effect = protocol.step(ChildrenDescribed((), ended=NAMES[1:]))
    assert effect == CommitChildren(CHILDREN, found.times_out)
    assert isinstance(protocol.step(refused), WriteDecision)
    words = "BATCH 3 IS TORN" if found.times_out else "ROWS OF BATCH 3 ARE MISSING"
    with pytest.raises(SinkStopped, match=words):
        protocol.step(ControlCommitted())


def test_transactional_sink_decision_records_whether_its_transactions_time_out() -> None:
    assert decode("s", dict(encode("s", FOUND))) == FOUND
    key, value = encode("s", decided(3, *CHILDREN))[0]
    before = value.replace(b'"times_out":false,', b"")
    assert before != value
    assert decode("s", {key: before}) == decided(3, *CHILDREN)


def test_transactional_sink_decision_has_a_form_unknown_to_an_older_program() -> None:
    def form_of(decision: Decision) -> int:
        return json.loads(encode("s", decision)[0][1])["form"]

    assert form_of(FOUND) == form_of(FOUND.claimed(9)) == 2  # the older program reads only 1
    assert {form_of(d) for d in (FOUND.done(), FOUND.undone(), FOUND.without(NAMES[:1]))} == {1}
    assert form_of(decided(3, *CHILDREN)) == 1


# --- states of a child


V2 = PreparedTransaction("id", 7, 4, True)
V1 = replace(V2, is_v2=False)
NOW_MS = 1_000_000


@pytest.mark.parametrize(
    ("child", "state", "epoch", "expected"),
    [
        (V2, "Ongoing", 4, "open"),
        (V2, "PrepareCommit", 5, "other"),
        (V2, "CompleteCommit", 5, "other"),
        (V2, "PrepareAbort", 5, "ended"),
        (V2, "CompleteAbort", 6, "ended"),
        (V2, "Empty", 6, "ended"),
        (V2, "Ongoing", 6, "ended"),
        (V1, "Ongoing", 4, "open"),
        (V1, "CompleteCommit", 4, "other"),
        (V1, "CompleteAbort", 4, "ended"),
        (V1, "CompleteAbort", 5, "ended"),
        (V1, "PrepareEpochFence", 5, "ended"),
    ],
)
def test_child_transaction_state_is_classified_from_its_description(
    child: PreparedTransaction, state: str, epoch: int, expected: str
) -> None:
    described = DescribedTransaction(
        transactional_id="id", coordinator=1, state=state, producer_id=7, producer_epoch=epoch,
        timeout_ms=60_000, start_ms=NOW_MS - 50_000,
    )  # fmt: skip
    assert standing(child, described, NOW_MS) == expected
    assert standing(replace(child, producer_id=8), described, NOW_MS) == "other"
    if expected == "open":
        assert standing(child, described, NOW_MS + 5_000) == "expiring"


def test_task_attempt_with_a_lost_answer_under_v1_fails_in_transactional_mode() -> None:
    class OfV1:
        lost_answers, calls = 1, list[str]()

        async def prepare(self, *, may_time_out: bool) -> PreparedTransaction:
            return V1

        async def abort_transaction(self) -> None:
            self.calls.append("abort")

        async def close(self) -> None:
            self.calls.append("close")

    async def prepare(timeout_ms: int | None) -> Any:
        login = ClusterLogin("127.0.0.1:1")
        spec = TaskSpec(
            sink_id="s", generation=1, batch_id=0, login=login, topic="t", timeout_ms=timeout_ms
        )
        worker: Any = None
        attempt = Attempt(spec, worker)
        attempt._producer = OfV1()  # type: ignore[assignment]
        return await attempt._prepare()

    assert asyncio.run(prepare(None)) == V1
    with pytest.raises(RequestTimedOut, match="cannot be relied upon"):
        asyncio.run(prepare(60_000))
    assert OfV1.calls == ["close", "abort", "close"]


# --- modes

LACKING = BrokerAnswers(lacking={"x.enable=true": [1, 2]})


@pytest.mark.parametrize(
    ("wanted", "answers", "chosen"),
    [
        (None, BrokerAnswers(), Mode.PREPARED),
        (None, LACKING, Mode.DRIVER),
        (None, BrokerAnswers(unseen=(1,)), Mode.DRIVER),
        (Mode.TRANSACTIONAL, BrokerAnswers(), Mode.TRANSACTIONAL),
        (Mode.DRIVER, BrokerAnswers(), Mode.DRIVER),
    ],
)
def test_sink_mode_auto_chooses_the_best_mode_the_brokers_allow(
    wanted: Mode | None, answers: BrokerAnswers, chosen: Mode
) -> None:
    assert choose_mode(wanted, answers) is chosen


def test_sink_mode_chosen_is_described_in_words() -> None:
    words = mode_in_words("s", None, Mode.DRIVER, LACKING, 600_000)
    assert "lack x.enable=true on broker 1, 2" in words
    words = mode_in_words("s", Mode.TRANSACTIONAL, Mode.TRANSACTIONAL, LACKING, 900_000)
    assert 'mode="transactional": exact as long as' in words
    assert "longer than 900 s" in words
    assert mode_in_words("s", None, Mode.PREPARED, BrokerAnswers(), 1).endswith(
        'mode="prepared": exact whatever happens'
    )
    with pytest.raises(SinkStopped, match=r'mode="driver", as exact.*mode="transactional"'):
        LACKING.require_prepared()


def test_sink_mode_of_an_unknown_name_is_refused() -> None:
    assert Mode.named("auto") is Mode.named(None) is None
    with pytest.raises(ValueError, match="none of prepared, transactional, driver, auto"):
        ExactlyOnceSink("s", "127.0.0.1:1", "t", mode="best")
    with pytest.raises(ValueError, match="transactions V2 only"):
        ExactlyOnceSink(
            "s", "127.0.0.1:1", "t", mode="transactional", oncelog_transaction_version_max=1
        )


def test_sink_on_brokers_that_allow_less_than_a_minute_uses_their_maximum_timeout() -> None:
    class Broker:
        versions: ClassVar = {22: (0, 5)}

    class View:
        snapshot = ClusterSnapshot(brokers={1: BrokerNode(1, "127.0.0.1", 1)})

        async def refresh(self, topics: list[str]) -> None: ...

        async def broker(self, node_id: int) -> Broker:
            return Broker()

    class Brokers:
        view = View()

        async def describe_configs(self, name: str, kind: int) -> list[SimpleNamespace]:
            return [SimpleNamespace(name="transaction.max.timeout.ms", value="30000")]

    admin: Any = Brokers()
    for given_ms, expected_ms in ((None, 30_000), (20_000, 20_000)):
        chosen = asyncio.run(settle_mode(admin, "s", Mode.TRANSACTIONAL, given_ms))
        assert (chosen.control_timeout_ms, chosen.task_timeout_ms) == (expected_ms, expected_ms)
    with pytest.raises(SinkStopped, match="transaction_timeout_ms=40000 is above"):
        asyncio.run(settle_mode(admin, "s", Mode.TRANSACTIONAL, 40_000))


def test_sink_timeout_may_be_given_by_the_setting_name_of_kafka() -> None:
    for name in ("transaction.timeout.ms", "kafka.transaction.timeout.ms"):
        sink = ExactlyOnceSink("s", "127.0.0.1:1", "t", mode="transactional", **{name: "5000"})
        assert sink.timeout_ms == 5_000
        assert "transaction_timeout_ms" not in sink._settings  # a producer gets it only once
        with pytest.raises(ValueError, match="transaction_timeout_ms is given twice"):
            ExactlyOnceSink("s", "127.0.0.1:1", "t", transaction_timeout_ms=1, **{name: "5000"})
