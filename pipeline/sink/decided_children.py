"""The end of the transactions that a decision names: they are committed, undone, or raise an alarm.

A child is the transaction of one task attempt. This file is a part of the generator in protocol.py,
and does no I/O. Prepared transactions are always committed. The cluster aborts ordinary
transactions (mode "transactional") when an outage was longer than their timeout. Some may time out
earlier than others. Therefore ordinary transactions are described before their commit, at a start
and after each decision, because the decision may have taken long.

If one child has timed out and none is committed, the others are aborted, too. An abort fails if the
child was committed meanwhile, by a superseded driver that does not know of its successor. If all
are aborted, the decision is undone, and the batch is written again. If one child has timed out and
another is committed, the batch is torn, and an alarm is raised.

A child that refuses EndTxn was aborted. Only a timeout can have aborted it, because the id of a
decided child is used for nothing else. A child with an expired id shows nothing.
"""

from collections.abc import Generator
from typing import Any, TypeVar

from . import steps, stop_words
from .decision import Decision
from .steps import Phase
from .stop_words import SinkStopped

T = TypeVar("T")
Part = Generator[steps.Effect, Any, T]  # yields effects, and gets the events that answer them


class DecidedChildren:
    """The part of SinkProtocol that ends a decision's children. The state is in SinkProtocol."""

    sink_id: str
    phase: Phase
    decision: Decision | None
    _given: steps.BatchGiven
    _last_word: SinkStopped | None

    def _take_up(self, phase: Phase) -> Part[bool]:
        """Commit the children of a decision. Return False if the decision was undone instead.

        phase: RECOVERING if the decision was found at a start, COMMITTING for a decision of this
        batch.
        """
        assert self.decision is not None
        if self.decision.times_out and self.decision.unfinished:
            self.phase = Phase.JUDGING
            found = yield steps.DescribeChildren(self.decision.unfinished)
            if self._is_to_be_undone(found):
                ended = set(found.ended)
                left = (c for c in self.decision.unfinished if c.transactional_id not in ended)
                rolled_back = yield steps.RollBackChildren(tuple(left))
                if isinstance(rolled_back, steps.ChildrenAborted):
                    return (yield from self._undo())
        self.phase = phase
        committed = yield steps.CommitChildren(self.decision.unfinished, self.decision.times_out)
        if isinstance(committed, steps.ChildrenRefused):
            return (yield from self._refused(committed))
        return True

    def _is_to_be_undone(self, found: steps.ChildrenDescribed) -> bool:
        assert self.decision is not None
        wanted = (child.transactional_id for child in self.decision.unfinished)
        is_known = {*found.open, *found.ended}.issuperset(wanted)
        return bool(found.ended) and is_known and self._may_be_undone

    @property
    def _may_be_undone(self) -> bool:
        """Return whether the decision can be undone without a loss of rows.

        That is so if Spark passes the same batch now, the decision's transactions have timeouts,
        and none of its rows are recorded as lost.
        """
        decision, given = self.decision, self._given
        return (
            decision is not None
            and decision.times_out
            and not decision.lost
            and (decision.query_id, decision.batch_id) == (given.query_id, given.batch_id)
        )

    def _undo(self) -> Part[bool]:
        assert self.decision is not None
        self.decision, self.phase = self.decision.undone(), Phase.UNDECIDING
        written = yield steps.WriteDecision(self.decision)
        if isinstance(written, steps.ControlInDoubt):
            words = self.sink_id, self._given.batch_id, written.reason
            raise stop_words.taken_over_while_undone(*words)
        return False

    def _refused(self, refused: steps.ChildrenRefused) -> Part[bool]:
        """Undo the decision if all children were aborted, else record the lost children and raise
        an alarm.

        The lost children are recorded because an expired id would not show how its transaction
        ended.
        """
        assert self.decision is not None
        is_whole = len(refused.names) == len(self.decision.children) and not refused.forgotten
        if is_whole and self._may_be_undone:
            return (yield from self._undo())
        self.decision = self.decision.without(refused.names)
        self._last_word = stop_words.rows_missing(self.sink_id, self.decision, refused.reason)
        yield steps.WriteDecision(self.decision)
        raise self._last_word
