"""The driver's side of the exactly-once sink: the next effect, for one sink in one driver.

Pure: `step(event)` returns the next effect (steps.py). Each task attempt has one prepared
transaction; one record in the topic of decisions names those which count; then all of these are
committed. The order of the steps is the protocol:

At the first batch of a run
    read the decision          a query that must not write stops before it fences the right one
    fence                      older drivers cannot decide from here on
    read it again              it is now the last one of older drivers
    claim a generation         above all others; sweeps go by it, so that a driver that was
                               superseded, and does not know, leaves its successor's children alone
    roll forward               commit the children of the decision; each may be committed already
                               (mode "transactional": or take the decision back)
    sweep                      abort the open children of own and older generations
At each batch
    check                      skip what is decided (batch_check.py)
    run the tasks              those with rows leave a transaction open each
    ask                        mode "transactional": whether all of these can be committed yet
    decide                     one record, in a transaction of the control id
    roll forward, sweep, and write down that the decision is done; mode "transactional" asks
                               once more before, since the decision may have been long on its way
Between batches
    sweep                      abort the open transactions of late attempts (idle_sweep.py)

After a long time without batches the start is repeated, since the control id may have expired; a
driver that finds another generation than its own stops, else it claims its own once more.

With mode "driver" a batch is written by the driver itself, in the transaction of its decision.

With mode "transactional" the cluster may abort a decided child, when an outage was longer than its
timeout: then the decision is taken back, or the batch is torn (decided_children.py).

When a decision is in doubt (the control id was taken over, or its transaction timed out) the topic
is read again: if the decision is there it counts, whichever driver is in office. A claim in doubt
stops the driver, since two drivers could have claimed the same generation.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...client import PreparedTransaction
from . import steps, stop_words
from .batch_check import BatchAction, Terms, check_batch
from .decided_children import DecidedChildren
from .decision import Decision
from .modes import Mode
from .names import Leftovers, check_sink_id, generation_of
from .steps import Phase
from .stop_words import SinkStopped

GIVEN_BACK_MAX = 2_000  # reusable ids in a task's spec; more if a batch has used more


class SinkProtocol(DecidedChildren):
    """The protocol of one driver, see the top of the file; after SinkStopped it stays stopped."""

    def __init__(
        self, sink_id: str, *, mode: Mode = Mode.PREPARED, terms: Terms | None = None
    ) -> None:
        self.sink_id, self.mode = check_sink_id(sink_id), mode
        self.phase = Phase.IDLE
        self.generation = 0  # 0: before a claim
        self.decision: Decision | None = None
        self.terms = terms or Terms()
        self._given = steps.BatchGiven(query_id="", batch_id=0)
        self._open: tuple[str, ...] = ()
        self._written_by: tuple[PreparedTransaction, ...] = ()  # the children of this batch
        self.reusable_ids: dict[str, None] = {}  # ids of this generation, the newest last
        self._given_back_max = GIVEN_BACK_MAX
        self._is_start = True
        self.leftovers: Leftovers | None = None  # while no batch runs, where that is known
        self._stopped: SinkStopped | None = None
        self._last_word: SinkStopped | None = None  # raised once the sweep is over

    def step(self, event: steps.Event) -> steps.Effect:
        """Apply an event; return the next effect. After SinkStopped it always raises that."""
        if self._stopped is not None:
            raise self._stopped
        self.leftovers = None
        if isinstance(event, steps.Failed):
            return self._failed()
        rule = RULES.get((self.phase, type(event)))
        assert rule is not None, f"{type(event).__name__} does not fit {self.phase.name}"
        try:
            return rule(self, event)
        except SinkStopped as stop:
            self.phase, self._stopped = Phase.STOPPED, stop
            raise

    def swept(self, names: Iterable[str]) -> None:
        """Never reuse these ids: their abort may arrive a second time, much later."""
        for name in names:
            self.reusable_ids.pop(name, None)

    def _failed(self) -> steps.Effect:
        """Start over at the next batch: the last effect may have happened or not."""
        assert self.phase is not Phase.READY
        if self._last_word is not None:
            self.phase, self._stopped = Phase.STOPPED, self._last_word
            raise self._last_word
        self.phase, self.generation = Phase.IDLE, 0
        return steps.BatchOver(was_written=False)

    # --- the start of a run

    def _begin(self, given: steps.BatchGiven) -> steps.Effect:
        self._given, self._is_start = given, True
        self.phase = Phase.LOOKING
        return steps.ReadDecision()

    def _looked(self, read: steps.DecisionRead) -> steps.Effect:
        self._check_found(read.decision)
        self.phase = Phase.FENCING
        return steps.FenceControlId()

    def _fenced(self, _: steps.Fenced) -> steps.Effect:
        self.phase = Phase.READING
        return steps.ReadDecision()

    def _read(self, read: steps.DecisionRead) -> steps.Effect:
        self._check_found(read.decision)
        self.decision = read.decision
        self.phase = Phase.LISTING
        return steps.ListOpen()

    def _check_found(self, found: Decision | None) -> None:
        if self.generation and (found is None or found.generation != self.generation):
            raise stop_words.taken_over_while_idle(self.sink_id)
        check_batch(self.sink_id, found, self._given, self.terms)

    def _listed(self, listed: steps.OpenListed) -> steps.Effect:
        generations = [generation_of(self.sink_id, name) for name in listed.names]
        self._open = listed.names
        before = self.decision or Decision(generation=0, query_id=self._given.query_id)
        newest = max(before.generation, *(g or 0 for g in generations), 0)
        if not self.generation or newest > self.generation:
            self.reusable_ids, newest = {}, newest + 1  # else it still holds its generation
        self.decision = before.claimed(newest)
        self.phase = Phase.CLAIMING
        return steps.WriteDecision(self.decision)

    def _claimed(self, _: steps.ControlCommitted) -> steps.Effect:
        assert self.decision is not None
        self.generation = self.decision.generation
        return self._take_up()

    def _claim_in_doubt(self, doubt: steps.ControlInDoubt) -> steps.Effect:
        raise stop_words.taken_over_at_start(self.sink_id, doubt.reason)

    def _recovered(self, _: steps.Event) -> steps.Effect:
        self.phase = Phase.SWEEPING
        return steps.AbortChildren(self._sweepable(self._open))

    def _swept(self, _: steps.ChildrenAborted) -> steps.Effect:
        self._open = ()
        return self._checked()

    # --- a batch

    def _next(self, given: steps.BatchGiven) -> steps.Effect:
        if given.is_long_after:
            return self._begin(given)
        self._given = given
        return self._checked()

    def _checked(self) -> steps.Effect:
        self._is_start = False
        action = check_batch(self.sink_id, self.decision, self._given, self.terms)
        if action is BatchAction.SKIP:
            return self._over(was_written=False)
        self.phase = Phase.WRITING
        if self.mode is Mode.DRIVER:
            self.decision = self._decided(())
            return steps.WriteBatch(self.decision)
        return steps.RunTasks(self.generation, self._given.batch_id, self._given_back())

    def _written(self, done: steps.TasksDone) -> steps.Effect:
        _require_one_report_each(done.reports)
        self._written_by = tuple(r.child for r in done.reports if r.child is not None)
        if self.mode is Mode.TRANSACTIONAL and self._written_by:
            self.phase = Phase.ASKING
            return steps.DescribeChildren(self._written_by)
        return self._decide()

    def _asked(self, found: steps.ChildrenDescribed) -> steps.Effect:
        whole = len(self._written_by)
        late = whole - len(set(found.open) - set(found.expiring))
        if not late:
            return self._decide()
        self._last_word = stop_words.took_too_long(self.sink_id, self._given.batch_id, late, whole)
        self.phase = Phase.LISTING_FAILED
        return steps.ListOpen()

    def _decide(self) -> steps.Effect:
        self.decision = self._decided(self._written_by)
        self.phase = Phase.DECIDING
        return steps.WriteDecision(self.decision)

    def _decided(self, children: tuple[PreparedTransaction, ...]) -> Decision:
        given, last = self._given, self.decision
        follows = last is not None and (last.query_id, last.batch_id + 1) == (
            given.query_id,
            given.batch_id,
        )
        return Decision(
            generation=self.generation,
            query_id=given.query_id,
            batch_id=given.batch_id,
            decided_by=self.generation,
            children=children,
            is_done=not children,
            digest=given.digest,
            digest_before=last.digest if last is not None and follows else "",
            times_out=self.mode is Mode.TRANSACTIONAL and bool(children),
        )

    def _in_doubt(self, _: steps.ControlInDoubt) -> steps.Effect:
        self.phase = Phase.READING_AGAIN
        return steps.ReadDecision()

    def _read_again(self, read: steps.DecisionRead) -> steps.Effect:
        found, wanted = read.decision, self.decision
        assert wanted is not None
        if found is not None and (found.decided_by, found.batch_id) == (
            wanted.decided_by,
            wanted.batch_id,
        ):
            return self._decision_stands(steps.ControlCommitted())
        self._last_word = stop_words.not_decided(self.sink_id, wanted.batch_id)
        self.decision = found
        self.phase = Phase.LISTING_FAILED
        return steps.ListOpen()

    def _decision_stands(self, _: steps.ControlCommitted) -> steps.Effect:
        assert self.decision is not None
        if self.mode is Mode.DRIVER:
            return self._over()
        return self._take_up()

    def _committed_all(self, _: steps.ChildrenCommitted) -> steps.Effect:
        self.phase = Phase.LISTING_LEFT
        return steps.ListOpen()

    def _listed_left(self, listed: steps.OpenListed) -> steps.Effect:
        self.phase = Phase.SWEEPING_LEFT
        return steps.AbortChildren(self._sweepable(listed.names))

    def _swept_left(self, _: steps.ChildrenAborted) -> steps.Effect:
        assert self.decision is not None
        if self.decision.is_done:  # nothing was written
            return self._over()
        self.phase = Phase.FINISHING
        return steps.WriteDecision(self.decision.done())

    def _finished(self, _: steps.ControlCommitted) -> steps.Effect:
        assert self.decision is not None
        self.decision = self.decision.done()
        # With fewer than a batch takes, every batch would use new ids, without end.
        self._given_back_max = max(self._given_back_max, len(self.decision.children))
        for child in self.decision.children:
            self.reusable_ids.pop(child.transactional_id, None)
            self.reusable_ids[child.transactional_id] = None
        for name in list(self.reusable_ids)[: -2 * self._given_back_max]:
            del self.reusable_ids[name]
        return self._over()

    def _finish_in_doubt(self, doubt: steps.ControlInDoubt) -> steps.Effect:
        raise stop_words.written_and_taken_over(self.sink_id, self._given.batch_id, doubt.reason)

    def _over(self, *, was_written: bool = True) -> steps.Effect:
        self.phase, self.leftovers = Phase.READY, self._leftovers()
        return steps.BatchOver(was_written=was_written)

    def _given_back(self) -> tuple[str, ...]:
        """Return the reusable ids: those of the last decision only after the next one.

        A driver that starts after a crash may have to commit those again, and must find them
        unchanged.
        """
        last = {c.transactional_id for c in self.decision.children} if self.decision else set()
        names = [name for name in self.reusable_ids if name not in last]
        return tuple(names[-self._given_back_max :])

    # --- what is left over

    def _sweepable(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the open children that may be aborted, and never reuse their ids."""
        swept = self._leftovers().among(names)
        self.swept(swept)
        return swept

    def _leftovers(self) -> Leftovers:
        children = self.decision.children if self.decision is not None else ()
        kept = frozenset(child.transactional_id for child in children)
        return Leftovers(self.sink_id, self.generation, kept)

    def _tasks_failed(self, _: steps.TasksFailed) -> steps.Effect:
        if self.mode is Mode.DRIVER:
            return self._failed()
        self.phase = Phase.LISTING_FAILED
        return steps.ListOpen()

    def _listed_failed(self, listed: steps.OpenListed) -> steps.Effect:
        self.phase = Phase.SWEEPING_FAILED
        return steps.AbortChildren(self._sweepable(listed.names))

    def _swept_failed(self, _: steps.ChildrenAborted) -> steps.Effect:
        if self._last_word is not None:
            raise self._last_word
        leftovers = self._leftovers()
        effect = self._failed()
        self.leftovers = leftovers  # attempts of a failed batch may live on
        return effect


def _require_one_report_each(reports: tuple[steps.TaskReport, ...]) -> None:
    found = sorted(report.partition_id for report in reports)
    if found != list(range(len(found))):
        raise stop_words.reports_do_not_fit(found)


_P = Phase
RULES: Mapping[tuple[Phase, type], Callable[[SinkProtocol, Any], steps.Effect]] = {
    (_P.IDLE, steps.BatchGiven): SinkProtocol._begin,
    (_P.LOOKING, steps.DecisionRead): SinkProtocol._looked,
    (_P.FENCING, steps.Fenced): SinkProtocol._fenced,
    (_P.READING, steps.DecisionRead): SinkProtocol._read,
    (_P.LISTING, steps.OpenListed): SinkProtocol._listed,
    (_P.CLAIMING, steps.ControlCommitted): SinkProtocol._claimed,
    (_P.CLAIMING, steps.ControlInDoubt): SinkProtocol._claim_in_doubt,
    (_P.JUDGING, steps.ChildrenDescribed): SinkProtocol._judged,
    (_P.ROLLING_BACK, steps.ChildrenAborted): SinkProtocol._undo,
    (_P.ROLLING_BACK, steps.ChildrenRefused): SinkProtocol._roll_forward,
    (_P.UNDECIDING, steps.ControlCommitted): SinkProtocol._recovered,
    (_P.UNDECIDING, steps.ControlInDoubt): SinkProtocol._undo_in_doubt,
    (_P.RECOVERING, steps.ChildrenCommitted): SinkProtocol._recovered,
    (_P.RECOVERING, steps.ChildrenRefused): SinkProtocol._refused,
    (_P.SWEEPING, steps.ChildrenAborted): SinkProtocol._swept,
    (_P.READY, steps.BatchGiven): SinkProtocol._next,
    (_P.WRITING, steps.TasksDone): SinkProtocol._written,
    (_P.WRITING, steps.TasksFailed): SinkProtocol._tasks_failed,
    (_P.ASKING, steps.ChildrenDescribed): SinkProtocol._asked,
    (_P.WRITING, steps.ControlCommitted): SinkProtocol._decision_stands,
    (_P.WRITING, steps.ControlInDoubt): SinkProtocol._in_doubt,
    (_P.DECIDING, steps.ControlCommitted): SinkProtocol._decision_stands,
    (_P.DECIDING, steps.ControlInDoubt): SinkProtocol._in_doubt,
    (_P.READING_AGAIN, steps.DecisionRead): SinkProtocol._read_again,
    (_P.COMMITTING, steps.ChildrenCommitted): SinkProtocol._committed_all,
    (_P.COMMITTING, steps.ChildrenRefused): SinkProtocol._refused,
    (_P.LISTING_LEFT, steps.OpenListed): SinkProtocol._listed_left,
    (_P.SWEEPING_LEFT, steps.ChildrenAborted): SinkProtocol._swept_left,
    (_P.ALARMING, steps.ControlCommitted): SinkProtocol._alarmed,
    (_P.ALARMING, steps.ControlInDoubt): SinkProtocol._alarmed,
    (_P.FINISHING, steps.ControlCommitted): SinkProtocol._finished,
    (_P.FINISHING, steps.ControlInDoubt): SinkProtocol._finish_in_doubt,
    (_P.LISTING_FAILED, steps.OpenListed): SinkProtocol._listed_failed,
    (_P.SWEEPING_FAILED, steps.ChildrenAborted): SinkProtocol._swept_failed,
}
