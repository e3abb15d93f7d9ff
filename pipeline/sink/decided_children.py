"""The end of a decision's children: a commit, a return to before the batch, or an alarm.

Pure; a part of the table of protocol.py. Prepared transactions are committed, whatever happens.
Ordinary ones (mode "transactional") the cluster aborts when an outage was longer than their
timeout, each at a moment of its own. So they are described first, at a start and also by the
driver that has just decided: its decision may have taken long. Where one has timed out and none is
committed, the others are aborted too, by requests that fail if one was committed meanwhile (by a
superseded driver that does not know of its successor); then the decision is taken back, and the
batch written again. Where one has timed out and another is committed, the batch is torn.

A refused child is an aborted one: the id of a decided child is used only to end it, so only a
timeout can have come first. A forgotten id says nothing.
"""

from . import steps, stop_words
from .decision import Decision
from .steps import Phase
from .stop_words import SinkStopped


class DecidedChildren:
    """The rules for the children of a decision, for SinkProtocol, which has the state."""

    sink_id: str
    phase: Phase
    generation: int
    decision: Decision | None
    _given: steps.BatchGiven
    _last_word: SinkStopped | None
    _is_start: bool  # the decision was found; else it is of the batch that is given

    def _take_up(self) -> steps.Effect:
        """Resume a decision that may be unfinished: of this batch, or found at a start."""
        assert self.decision is not None
        if self.decision.times_out and self.decision.unfinished:
            self.phase = Phase.JUDGING
            return steps.DescribeChildren(self.decision.unfinished)
        return self._roll_forward()

    def _roll_forward(self, _: steps.Event | None = None) -> steps.Effect:
        assert self.decision is not None
        self.phase = Phase.RECOVERING if self._is_start else Phase.COMMITTING
        return steps.CommitChildren(self.decision.unfinished, self.decision.times_out)

    def _judged(self, found: steps.ChildrenDescribed) -> steps.Effect:
        assert self.decision is not None
        wanted = self.decision.unfinished
        is_known = {*found.open, *found.ended}.issuperset(c.transactional_id for c in wanted)
        if not found.ended or not is_known or not self._may_be_undone:
            return self._roll_forward()
        self.phase = Phase.ROLLING_BACK
        ended = set(found.ended)
        left = (child for child in wanted if child.transactional_id not in ended)
        return steps.RollBackChildren(tuple(left))

    @property
    def _may_be_undone(self) -> bool:
        """Whether Spark will write this batch again, and nothing of it counts as lost yet."""
        decision, given = self.decision, self._given
        return (
            decision is not None
            and decision.times_out
            and not decision.lost
            and (decision.query_id, decision.batch_id) == (given.query_id, given.batch_id)
        )

    def _undo(self, _: steps.Event | None = None) -> steps.Effect:
        assert self.decision is not None
        self.decision = self.decision.undone()
        self.phase = Phase.UNDECIDING
        return steps.WriteDecision(self.decision)

    def _undo_in_doubt(self, doubt: steps.ControlInDoubt) -> steps.Effect:
        batch_id = self._given.batch_id
        raise stop_words.taken_over_while_undone(self.sink_id, batch_id, doubt.reason)

    def _refused(self, refused: steps.ChildrenRefused) -> steps.Effect:
        """Raise an alarm, and record it: an id that expires can no longer tell how it ended."""
        assert self.decision is not None
        is_whole = len(refused.names) == len(self.decision.children) and not refused.forgotten
        if is_whole and self._may_be_undone:
            return self._undo()
        self.decision = self.decision.without(refused.names)
        self._last_word = stop_words.rows_missing(self.sink_id, self.decision, refused.reason)
        self.phase = Phase.ALARMING
        return steps.WriteDecision(self.decision)

    def _alarmed(self, _: steps.ControlCommitted | steps.ControlInDoubt) -> steps.Effect:
        assert self._last_word is not None
        raise self._last_word
