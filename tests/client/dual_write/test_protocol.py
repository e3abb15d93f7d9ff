"""Test the state machine of a writer, with a coordinator that does not answer or refuses."""

from asyncio import CancelledError

import pytest

from oncelog.client.dual_write import steps
from oncelog.client.dual_write.protocol import FINISHED_MAX, WriterProtocol
from oncelog.client.dual_write.steps import EMPTY, DecidedOutcome, TransactionKey, WriterPhase
from oncelog.client.dual_write.stop_words import (
    DecisionInDoubt,
    DecisionOverruled,
    DualWriteError,
    WriterSuperseded,
)
from oncelog.wire.errors import InvalidTxnState, ProducerFenced, RequestTimedOut

KEY = TransactionKey("oncelog.dual.w.1", 5, 2)
AWAY = steps.EndUnanswered(RequestTimedOut("no coordinator"))


def ready() -> WriterProtocol:
    writer = WriterProtocol("w")
    assert writer.step(steps.SessionStarted("id")) == steps.Claim("w", "id")
    assert writer.step(steps.Claimed(3)) == steps.Initialize("id")
    assert writer.step(steps.Initialized()) == steps.BecomeReady()
    return writer


def at_decision(writer: WriterProtocol, key: TransactionKey | None = KEY) -> steps.Effect:
    assert writer.step(steps.BlockBegun()) == steps.BeginBoth()
    assert writer.step(steps.BothBegun()) == steps.RunBlock()
    assert writer.step(steps.BlockDone()) == steps.Prepare()
    return writer.step(steps.Prepared(key))


def decided() -> WriterProtocol:
    writer = ready()
    assert at_decision(writer) == steps.Decide("w", KEY, 3)
    assert writer.step(steps.DatabaseCommitted()) == steps.EndAsDecided(KEY, is_commit=True)
    return writer


def test_writer_start_ends_older_sessions_as_decided_then_fences_and_deletes_them() -> None:
    writer = WriterProtocol("w")
    writer.step(steps.SessionStarted("id"))
    assert writer.step(steps.Claimed(3, ("a", "b"))) == steps.ReadDecisions("a")
    first, last = TransactionKey("a", 1, 1), TransactionKey("a", 1, 2)
    ends = [steps.EndAsDecided(key, is_commit=True) for key in (first, last)]
    assert writer.step(steps.DecisionsRead((first, last))) == ends[0]
    assert writer.step(steps.EndRefused(ProducerFenced("it is completed"))) == ends[1]
    assert writer.step(steps.EndedAsDecided()) == steps.FenceSession("a")
    assert writer.step(steps.SessionFenced()) == steps.DeleteSession("a")
    assert writer.step(steps.SessionDeleted()) == steps.ReadDecisions("b")
    assert writer.step(steps.DecisionsRead()) == steps.FenceSession("b")
    assert writer.step(steps.SessionFenced()) == steps.DeleteSession("b")
    assert writer.step(steps.SessionDeleted()) == steps.Initialize("id")
    assert writer.step(steps.Initialized(is_certain=False)) == steps.StartSession()
    assert writer.step(steps.SessionStarted("id2")) == steps.Claim("w", "id2")


def test_writer_without_an_answer_to_its_commit_repeats_the_commit_before_the_next_block() -> None:
    writer = decided()
    assert writer.step(AWAY) == steps.EndBlock(is_committed=True)
    for _ in range(2):
        assert writer.step(steps.BlockBegun()) == steps.EndAsDecided(KEY, is_commit=True)
        with pytest.raises(RequestTimedOut):
            writer.step(AWAY)
    writer.step(steps.BlockBegun())
    assert writer.step(steps.EndedAsDecided()) == steps.BeginBoth()
    assert writer.phase is WriterPhase.OPENING


def test_writer_with_its_last_block_completed_by_a_successor_is_superseded_at_the_next_block() -> (
    None
):
    """If the application's block ran anyway, its connection would never be rolled back."""
    writer = decided()
    writer.step(AWAY)
    writer.step(steps.BlockBegun())
    fenced = steps.EndRefused(ProducerFenced("fenced"))
    assert writer.step(fenced) == steps.ReadGeneration("w")
    with pytest.raises(WriterSuperseded):
        writer.step(steps.GenerationRead(4))
    with pytest.raises(WriterSuperseded):
        writer.step(steps.BlockBegun())


def test_writer_without_an_answer_to_its_abort_repeats_the_abort_before_the_next_block() -> None:
    writer = ready()
    at_decision(writer)
    reason = ValueError()
    assert writer.step(steps.DatabaseRefused(reason)) == steps.RollBack()
    assert writer.step(steps.RolledBack()) == steps.AbortOwn()
    assert writer.step(AWAY) == steps.EndBlock(is_committed=False, reason=reason)
    assert writer.step(steps.BlockBegun()) == steps.AbortOwn()
    assert writer.step(steps.Aborted()) == steps.BeginBoth()


def test_writer_with_a_committed_block_aborted_in_kafka_raises_decision_overruled() -> None:
    writer = decided()
    with pytest.raises(DecisionOverruled, match="aborted in Kafka by somebody else"):
        writer.step(steps.EndRefused(InvalidTxnState("aborted"), is_overruled=True))
    with pytest.raises(DecisionOverruled):
        writer.step(steps.BlockBegun())


def test_writer_fenced_after_its_decision_reports_a_commit_only_if_a_successor_has_started() -> (
    None
):
    writer = decided()
    fenced = steps.EndRefused(ProducerFenced("fenced"))
    assert writer.step(fenced) == steps.ReadGeneration("w")
    assert writer.step(steps.GenerationRead(4)) == steps.EndBlock(is_committed=True)
    with pytest.raises(WriterSuperseded):
        writer.step(steps.BlockBegun())
    writer = decided()
    writer.step(fenced)
    with pytest.raises(DecisionOverruled):  # no writer has started: the session was ended by hand
        writer.step(steps.GenerationRead(3))


def test_writer_in_doubt_about_its_database_commit_follows_the_decision_table() -> None:
    reason = ConnectionError()
    for outcome, follows in (
        (DecidedOutcome.COMMITTED, steps.EndAsDecided(KEY, is_commit=True)),
        (DecidedOutcome.ABORTED, steps.RollBack()),
    ):
        writer = ready()
        at_decision(writer)
        assert writer.step(steps.DatabaseInDoubt(reason)) == steps.ReadOrAbort(KEY)
        assert writer.step(steps.OutcomeRead(outcome)) == follows
    writer = ready()
    at_decision(writer)
    writer.step(steps.DatabaseInDoubt(reason))
    with pytest.raises(DecisionInDoubt):  # a successor has deleted the decision
        writer.step(steps.OutcomeRead(None, is_session_over=True))


def test_cancelled_writer_refuses_the_next_block_with_a_dual_write_error() -> None:
    writer = ready()
    at_decision(writer)
    writer.stop(CancelledError())
    with pytest.raises(DualWriteError, match=r"interrupted .*CancelledError.* start the writer"):
        writer.step(steps.BlockBegun())


@pytest.mark.parametrize(
    ("events", "follows"),
    [
        ((), steps.RollBack()),
        ((steps.BothBegun(),), steps.RollBack()),
        ((steps.BothBegun(), steps.BlockDone()), steps.RollBack()),
        ((steps.BothBegun(), steps.BlockFailed()), steps.RollBack()),
        ((steps.BlockFailed(), steps.RolledBack()), steps.AbortOwn()),
    ],
    ids=["opening", "open", "preparing", "rolling back", "aborting"],
)
def test_writer_interrupted_in_a_block_before_its_decision_rolls_the_block_back(
    events: tuple[steps.Event, ...], follows: steps.Effect
) -> None:
    writer, reason = ready(), KeyboardInterrupt()
    assert not writer.is_amid
    for event in (steps.BlockBegun(), *events):
        writer.step(event)
    assert writer.is_amid
    assert writer.resume(reason) == follows == writer.resume(reason)
    if follows == steps.RollBack():
        assert writer.step(steps.RolledBack()) == steps.AbortOwn()
    ended = writer.step(steps.Aborted())
    assert isinstance(ended, steps.EndBlock) and not ended.is_committed and not writer.is_amid
    assert writer.step(steps.BlockBegun()) == steps.BeginBoth()


def test_writer_interrupted_in_its_database_commit_reads_the_outcome_and_ends_the_block() -> None:
    writer, reason = ready(), KeyboardInterrupt()
    at_decision(writer)
    asks, ends = steps.ReadOrAbort(KEY), steps.EndAsDecided(KEY, is_commit=True)
    assert writer.resume(reason) == asks == writer.resume(reason)
    assert writer.step(steps.OutcomeRead(DecidedOutcome.COMMITTED)) == ends == writer.resume(reason)
    assert writer.step(steps.EndRefused(ProducerFenced("fenced"))) == steps.ReadGeneration("w")
    assert writer.resume(reason) == steps.ReadGeneration("w")
    assert writer.step(steps.GenerationRead(4)) == steps.EndBlock(is_committed=True)


def test_writer_decision_deletes_the_rows_of_its_finished_transactions() -> None:
    writer = ready()
    for number in range(1, 4):
        key = TransactionKey("id", EMPTY, number)
        before = (TransactionKey("id", EMPTY, number - 1),) if number > 1 else ()
        assert at_decision(writer, None) == steps.Decide("w", key, 3, before)
        assert writer.step(steps.DatabaseCommitted()) == steps.EndAsDecided(key, is_commit=True)
        assert writer.step(steps.EndedAsDecided()) == steps.EndBlock(is_committed=True)
    assert FINISHED_MAX > 1
