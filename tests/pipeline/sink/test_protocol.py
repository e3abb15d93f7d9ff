"""Test the order of effects in the sink's protocol, and the reasons to stop.

A child is the transaction of one task attempt. A decision lists the children to commit.
"""

from typing import get_args

import pytest

from oncelog.client import PreparedTransaction
from oncelog.pipeline.sink.batch_check import Terms
from oncelog.pipeline.sink.decision import Decision
from oncelog.pipeline.sink.names import child_prefix
from oncelog.pipeline.sink.protocol import Mode, Phase, SinkProtocol
from oncelog.pipeline.sink.steps import (
    ANSWERS,
    AbortChildren,
    BatchGiven,
    BatchOver,
    ChildrenAborted,
    ChildrenCommitted,
    ChildrenRefused,
    CommitChildren,
    ControlCommitted,
    ControlInDoubt,
    DecisionRead,
    Effect,
    Event,
    Failed,
    FenceControlId,
    Fenced,
    ListOpen,
    OpenListed,
    ReadDecision,
    RunTasks,
    TaskReport,
    TasksDone,
    TasksFailed,
    WriteBatch,
    WriteDecision,
)
from oncelog.pipeline.sink.stop_words import SinkStopped

EVENTS = tuple(each for each in get_args(Event) if each is not Failed)


def given(batch_id: int, query_id: str = "q", digest: str = "") -> BatchGiven:
    return BatchGiven(query_id=query_id, batch_id=batch_id, digest=digest)


def child(number: int, generation: int = 1) -> PreparedTransaction:
    return PreparedTransaction(
        f"{child_prefix('s')}{generation}.0000abcd.{number}", 100 + number, 0, True
    )


def report(partition: int, generation: int = 1) -> TaskReport:
    return TaskReport(partition_id=partition, record_count=5, child=child(partition, generation))


def decided(
    batch_id: int, *children: PreparedTransaction, done: bool = False, **fields: object
) -> Decision:
    values = {"generation": 1, "query_id": "q", "decided_by": 1, **fields}
    return Decision(batch_id=batch_id, children=children, is_done=done, **values)  # type: ignore[arg-type]


def feed(protocol: SinkProtocol, *events: Event) -> Effect:
    effect: Effect | None = None
    for event in events:
        effect = protocol.step(event)
    assert effect is not None
    return effect


def start(
    protocol: SinkProtocol, found: Decision | None, first: BatchGiven, *opened: str
) -> Effect:
    """Start a driver up to the effect that commits the children of the last decision."""
    read = DecisionRead(found)
    return feed(protocol, first, read, Fenced(), read, OpenListed(opened), ControlCommitted())


def running(found: Decision | None = None, batch: int = 0, mode: Mode = Mode.PREPARED):
    """Return a protocol that writes its first batch, and the effect that started the tasks."""
    protocol = SinkProtocol("s", mode=mode)
    start(protocol, found, given(batch))
    return protocol, feed(protocol, ChildrenCommitted(), ChildrenAborted())


@pytest.fixture
def protocol() -> SinkProtocol:
    return SinkProtocol("s")


def test_sink_protocol_of_a_new_sink_runs_all_its_steps(protocol: SinkProtocol) -> None:
    claim = Decision(generation=1, query_id="q")
    assert protocol.step(given(0)) == ReadDecision()
    assert protocol.step(DecisionRead(None)) == FenceControlId()
    assert protocol.step(Fenced()) == ReadDecision()
    assert protocol.step(DecisionRead(None)) == ListOpen()
    assert protocol.step(OpenListed(())) == WriteDecision(claim)
    assert protocol.step(ControlCommitted()) == CommitChildren(())
    assert protocol.step(ChildrenCommitted()) == AbortChildren(())
    assert protocol.step(ChildrenAborted()) == RunTasks(1, 0, ())
    decision = decided(0, child(0), child(2))
    assert protocol.step(DONE) == WriteDecision(decision)
    assert protocol.step(ControlCommitted()) == CommitChildren(decision.children)
    assert protocol.step(ChildrenCommitted()) == ListOpen()
    assert protocol.step(OpenListed(())) == AbortChildren(())
    assert protocol.step(ChildrenAborted()) == WriteDecision(decision.done())
    assert protocol.step(ControlCommitted()) == BatchOver(was_written=True)
    assert protocol.phase is Phase.READY


def test_sink_batch_without_rows_writes_its_decision_only_once() -> None:
    protocol, _ = running()
    nothing = TaskReport(partition_id=0, record_count=0, child=None)
    effect = feed(protocol, TasksDone((nothing,)), ControlCommitted())
    assert effect == CommitChildren(())
    effect = feed(protocol, ChildrenCommitted(), OpenListed(()), ChildrenAborted())
    assert effect == BatchOver(was_written=True)


def test_sink_batch_already_decided_is_completed_and_skipped(protocol: SinkProtocol) -> None:
    found = decided(3, child(0), child(1), generation=4)
    effect = start(protocol, found, given(3), child(0).transactional_id, child(9).transactional_id)
    assert effect == CommitChildren(found.children)
    effect = protocol.step(ChildrenCommitted())
    assert effect == AbortChildren((child(9).transactional_id,))
    assert protocol.step(ChildrenAborted()) == BatchOver(was_written=False)
    assert protocol.step(given(4)) == RunTasks(5, 4, ())


def test_sink_decision_already_completed_is_not_completed_again(protocol: SinkProtocol) -> None:
    effect = start(protocol, decided(3, child(0), done=True), given(3))
    assert effect == CommitChildren(())


def test_sink_child_left_open_by_a_newer_driver_is_not_aborted() -> None:
    protocol, _ = running()
    younger, older = child(1, generation=2).transactional_id, child(7).transactional_id
    other = "oncelog.spark.other.g1.0000abcd.1"
    feed(protocol, TasksDone((report(0),)), ControlCommitted(), ChildrenCommitted())
    effect = protocol.step(OpenListed((younger, older, other)))
    assert effect == AbortChildren((older,))


def test_sink_generation_without_a_decision_is_above_those_of_open_children(
    protocol: SinkProtocol,
) -> None:
    read = DecisionRead(None)
    name = child(0, generation=8).transactional_id
    effect = feed(protocol, given(0), read, Fenced(), read, OpenListed((name,)))
    assert effect == WriteDecision(Decision(generation=9, query_id="q"))


def test_sink_decision_without_an_answer_is_read_again_and_used_if_found() -> None:
    protocol, _ = running()
    doubt = feed(protocol, TasksDone((report(0),)), ControlInDoubt("47"))
    assert doubt == ReadDecision()
    found = decided(0, child(0), generation=2)  # a successor has claimed already
    assert protocol.step(DecisionRead(found)) == CommitChildren((child(0),))


@pytest.mark.parametrize(
    "found", [None, Decision(generation=2, query_id="q"), decided(0, generation=2, decided_by=2)]
)
def test_sink_decision_that_was_not_written_stops_the_driver_after_a_sweep(found: Decision) -> None:
    protocol, _ = running()
    feed(protocol, TasksDone((report(0),)), ControlInDoubt("90"))
    assert protocol.step(DecisionRead(found)) == ListOpen()
    name = child(0).transactional_id
    assert protocol.step(OpenListed((name,))) == AbortChildren((name,))
    with pytest.raises(SinkStopped, match="was not decided"):
        protocol.step(ChildrenAborted())
    with pytest.raises(SinkStopped, match="was not decided"):
        protocol.step(given(0))


def test_sink_claim_without_an_answer_stops_the_driver(protocol: SinkProtocol) -> None:
    read = DecisionRead(None)
    feed(protocol, given(0), read, Fenced(), read, OpenListed(()))
    with pytest.raises(SinkStopped, match="Only one query may use a sink_id"):
        protocol.step(ControlInDoubt("90"))


def idle() -> SinkProtocol:
    """Return a protocol after a batch without rows."""
    protocol, _ = running()
    nothing = TaskReport(partition_id=0, record_count=0, child=None)
    feed(protocol, TasksDone((nothing,)), ControlCommitted(), ChildrenCommitted())
    feed(protocol, OpenListed(()), ChildrenAborted())
    return protocol


def test_sink_driver_after_a_long_pause_restarts_its_protocol_and_continues() -> None:
    protocol = idle()
    long_after = BatchGiven(query_id="q", batch_id=1, is_long_after=True)
    effect = start(protocol, decided(0, done=True), long_after)
    assert effect == CommitChildren(())
    assert feed(protocol, ChildrenCommitted(), ChildrenAborted()) == RunTasks(1, 1, ())


def test_sink_child_ids_returned_before_a_long_pause_are_reused_after_it() -> None:
    protocol, _ = running()
    finish = (ControlCommitted(), ChildrenCommitted(), OpenListed(()), ChildrenAborted())
    for batch in range(3):
        one = TaskReport(partition_id=0, record_count=5, child=child(batch))
        feed(protocol, TasksDone((one,)), *finish, ControlCommitted())
        if batch < 2:
            protocol.step(given(batch + 1))
    long_after = BatchGiven(query_id="q", batch_id=3, is_long_after=True)
    start(protocol, decided(2, child(2), done=True), long_after)
    effect = feed(protocol, ChildrenCommitted(), ChildrenAborted())
    assert isinstance(effect, RunTasks)
    assert effect.generation == 1
    assert set(effect.committed) == {child(0).transactional_id, child(1).transactional_id}


def test_sink_driver_superseded_during_a_long_pause_does_not_fence_its_successor() -> None:
    protocol = idle()
    protocol.step(BatchGiven(query_id="q", batch_id=1, is_long_after=True))
    with pytest.raises(SinkStopped, match="has taken over while this one had nothing"):
        protocol.step(DecisionRead(decided(0, done=True, generation=2)))


def test_sink_child_decided_and_then_aborted_raises_an_alarm() -> None:
    protocol, _ = running()
    feed(protocol, TasksDone((report(0),)), ControlCommitted())
    name = child(0).transactional_id
    alarm = decided(0, child(0), lost=(name,))
    assert protocol.step(ChildrenRefused((name,), "PRODUCER_FENCED")) == WriteDecision(alarm)
    with pytest.raises(SinkStopped, match="ROWS OF BATCH 0 ARE MISSING"):
        protocol.step(ControlCommitted())
    again = SinkProtocol("s")
    start(again, decided(3, child(0)), given(3))
    again.step(ChildrenRefused((name,), "PRODUCER_FENCED"))
    with pytest.raises(SinkStopped, match="ROWS OF BATCH 3 ARE MISSING"):
        again.step(ControlInDoubt("90"))


def test_sink_children_reported_as_lost_are_not_committed_at_a_confirmed_restart() -> None:
    found = decided(4, child(0), child(1), lost=(child(0).transactional_id,))
    protocol = SinkProtocol("s", terms=Terms(first_batch=5))
    assert start(protocol, found, given(4)) == CommitChildren((child(1),))
    effect = feed(protocol, ChildrenCommitted(), ChildrenAborted())
    assert effect == BatchOver(was_written=False)
    assert isinstance(protocol.step(given(5)), RunTasks)


def test_sink_driver_fenced_after_its_commit_reports_the_batch_as_written() -> None:
    protocol, _ = running()
    feed(protocol, TasksDone((report(0),)), ControlCommitted(), ChildrenCommitted())
    feed(protocol, OpenListed(()), ChildrenAborted())
    with pytest.raises(SinkStopped, match="is written, but another driver"):
        protocol.step(ControlInDoubt("90"))


def test_sink_without_exactly_one_report_for_each_partition_decides_no_batch() -> None:
    protocol, _ = running()
    with pytest.raises(SinkStopped, match="not each one once"):
        protocol.step(TasksDone((report(0), report(0))))


@pytest.mark.parametrize(
    ("found", "batch", "words"),
    [
        (None, 4, "no decision of sink s"),
        (Decision(generation=1, query_id="q"), 4, "no decision of sink s"),
        (decided(4), 3, "restored from an older copy"),
        (decided(4), 6, "batches 5 to 5 did not pass through it"),
        (decided(4, query_id="other"), 0, "replaces_query='other'"),
        (decided(4, digest="one"), 4, "planned it anew"),
        (decided(4, lost=("x",)), 4, "ROWS OF BATCH 4 ARE MISSING"),
        (decided(4, lost=("x",)), 5, "ROWS OF BATCH 4 ARE MISSING"),
    ],
)
def test_sink_decision_that_contradicts_the_checkpoint_stops_the_driver_before_a_fence(
    protocol: SinkProtocol, found: Decision, batch: int, words: str
) -> None:
    protocol.step(given(batch, digest="two"))
    with pytest.raises(SinkStopped, match=words):
        protocol.step(DecisionRead(found))


@pytest.mark.parametrize(
    ("found", "batch", "terms"),
    [
        (None, 4, Terms(first_batch=4)),
        (decided(4), 6, Terms(first_batch=6)),
        (decided(4, query_id="other"), 0, Terms(replaces_query="other")),
        (decided(4, lost=("x",)), 5, Terms(first_batch=5)),
        (
            decided(4, query_id="other", lost=("x",)),
            0,
            Terms(replaces_query="other", first_batch=5),
        ),
        (Decision(generation=3, query_id="other"), 0, Terms()),  # that query never wrote anything
    ],
)
def test_sink_batch_contradicting_the_checkpoint_is_written_if_the_options_allow_it(
    found: Decision, batch: int, terms: Terms
) -> None:
    protocol = SinkProtocol("s", terms=terms)
    start(protocol, found, given(batch))
    effect = feed(protocol, ChildrenCommitted(), ChildrenAborted())
    assert isinstance(effect, RunTasks)


@pytest.mark.parametrize(
    ("query_id", "batch", "terms", "words"),
    [
        ("other", 0, Terms(replaces_query="other"), "ROWS OF BATCH 4 ARE MISSING"),
        ("other", 0, Terms(first_batch=5), "and replaces_query='other'"),
        ("other", 0, Terms(replaces_query="other", first_batch=4), "ROWS OF BATCH 4 ARE MISSING"),
        ("other", 0, Terms(replaces_query="third", first_batch=5), "ROWS OF BATCH 4 ARE MISSING"),
        ("other", 2, Terms(replaces_query="other", first_batch=5), "is at batch 2"),
        ("q", 3, Terms(replaces_query="q", first_batch=5), "ROWS OF BATCH 4 ARE MISSING"),
    ],
)
def test_sink_alarm_stops_a_driver_that_does_not_confirm_its_batch_number(
    query_id: str, batch: int, terms: Terms, words: str
) -> None:
    protocol = SinkProtocol("s", terms=terms)
    protocol.step(given(batch))
    with pytest.raises(SinkStopped, match=words):
        protocol.step(DecisionRead(decided(4, query_id=query_id, lost=("x",))))


def test_sink_tasks_that_failed_leave_no_open_transaction() -> None:
    protocol, _ = running()
    assert protocol.step(TasksFailed()) == ListOpen()
    name = child(5).transactional_id
    assert protocol.step(OpenListed((name,))) == AbortChildren((name,))
    assert protocol.step(ChildrenAborted()) == BatchOver(was_written=False)
    assert protocol.phase is Phase.IDLE
    assert protocol.step(given(0)) == ReadDecision()


def test_sink_in_driver_mode_writes_a_batch_with_its_decision() -> None:
    protocol, effect = running(mode=Mode.DRIVER)
    assert effect == WriteBatch(decided(0, done=True))
    assert protocol.step(ControlCommitted()) == BatchOver(was_written=True)
    assert protocol.step(given(0)) == BatchOver(was_written=False)
    protocol.step(given(1))
    assert protocol.step(ControlInDoubt("47")) == ReadDecision()
    found = DecisionRead(decided(1, done=True, generation=2))
    assert protocol.step(found) == BatchOver(was_written=True)


DONE = TasksDone((report(0), TaskReport(partition_id=1, record_count=0, child=None), report(2)))
START = (given(0), DecisionRead(None), Fenced(), DecisionRead(None), OpenListed(()))
COMMIT = (ControlCommitted(), ChildrenCommitted())
SWEEP = (OpenListed(()), ChildrenAborted())
WHOLE = (*START, *COMMIT, ChildrenAborted(), DONE, *COMMIT, *SWEEP, ControlCommitted())


def test_sink_event_that_does_not_answer_the_last_effect_is_refused(
    protocol: SinkProtocol,
) -> None:
    expected: tuple[type, ...] = (BatchGiven,)
    for event in WHOLE:
        for other in set(EVENTS) - set(expected):
            with pytest.raises(AssertionError, match="does not fit"):
                protocol.step(object.__new__(other))
        expected = ANSWERS.get(type(protocol.step(event)), (BatchGiven,))
    assert protocol.phase is Phase.READY


@pytest.mark.parametrize("count", range(1, len(WHOLE)))
def test_sink_protocol_starts_over_after_any_failed_effect(
    protocol: SinkProtocol, count: int
) -> None:
    feed(protocol, *WHOLE[:count])
    assert protocol.step(Failed()) == BatchOver(was_written=False)
    assert protocol.phase is Phase.IDLE
    assert protocol.step(given(0)) == ReadDecision()
