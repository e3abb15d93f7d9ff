"""The driver's side of the exactly-once sink: what to do next, for one sink in one driver.

Pure: `step(event)` returns the next effect (steps.py). One prepared transaction for each task
attempt; one record in the topic of decisions that names those which count; then all of them are
committed. The order of things is the protocol:

At the first batch of a run
    look at the decision       a query that must not write stops before it fences the right one
    fence                      older drivers cannot decide from here on
    read the decision          so what is read now is the last word of theirs
    claim a generation         above all others; sweeps go by it, so that a driver that was
                               superseded, and does not know, leaves its successor's children alone
    roll forward               commit the children of the decision; each may be committed already
    sweep                      abort the open children of own and older generations
At each batch
    judge                      skip what is decided (judgement.py)
    run the tasks              those with rows end with a prepared transaction each
    decide                     one record, in a transaction of the control id
    roll forward, sweep, and write down that the decision is done

After a long time without batches the start is gone through again, since the control id may have
expired; whoever finds another generation than its own ends there.

With mode "driver" a batch is written by the driver itself, in the transaction of its decision.

When a decision is in doubt (the control id was taken over, or its transaction timed out) the topic
is read again: if the decision is there it counts, whoever is in office now. A claim in doubt stops
the driver, since two drivers could believe in the same generation.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any

from .decision import Decision
from .judgement import SinkStopped, Terms, Verdict, judge, rows_missing
from .names import check_sink_id, generation_of
from .steps import (
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
    Fence,
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

GIVEN_BACK_MAX = 2_000  # ids that tasks are told of


class Mode(Enum):
    PREPARED = "prepared"
    DRIVER = "driver"


class Phase(Enum):
    """What the protocol waits for."""

    IDLE = auto()  # nothing is known
    LOOKING = auto()
    FENCING = auto()
    READING = auto()
    LISTING = auto()
    CLAIMING = auto()
    RECOVERING = auto()  # roll forward at the start
    SWEEPING = auto()
    READY = auto()
    WRITING = auto()
    DECIDING = auto()
    READING_AGAIN = auto()
    COMMITTING = auto()
    LISTING_LEFT = auto()
    SWEEPING_LEFT = auto()
    FINISHING = auto()
    ALARMING = auto()
    LISTING_FAILED = auto()
    SWEEPING_FAILED = auto()
    STOPPED = auto()


class SinkProtocol:
    """See the top of the file. One object for one driver; after SinkStopped it stays stopped."""

    def __init__(
        self, sink_id: str, *, mode: Mode = Mode.PREPARED, terms: Terms | None = None
    ) -> None:
        self.sink_id, self.mode = check_sink_id(sink_id), mode
        self.phase = Phase.IDLE
        self.generation = 0  # 0: not in office
        self.decision: Decision | None = None
        self._terms = terms or Terms()
        self._given = BatchGiven(query_id="", batch_id=0)
        self._open: tuple[str, ...] = ()
        self._committed: dict[str, None] = {}  # ids of this generation, the newest last
        self._stopped: SinkStopped | None = None
        self._last_word: SinkStopped | None = None  # to be said when what is left is swept

    def step(self, event: Event) -> Effect:
        """Take what happened; the next effect. Raises SinkStopped, then for ever."""
        if self._stopped is not None:
            raise self._stopped
        if isinstance(event, Failed):
            return self._failed()
        rule = RULES.get((self.phase, type(event)))
        assert rule is not None, f"{type(event).__name__} does not fit {self.phase.name}"
        try:
            return rule(self, event)
        except SinkStopped as stop:
            self.phase, self._stopped = Phase.STOPPED, stop
            raise

    def _failed(self) -> Effect:
        """Somebody has to begin anew: what was asked for last may have happened or not."""
        assert self.phase is not Phase.READY
        if self._last_word is not None:
            self.phase, self._stopped = Phase.STOPPED, self._last_word
            raise self._last_word
        self.phase, self.generation = Phase.IDLE, 0
        return BatchOver(was_written=False)

    # --- the start of a run

    def _begin(self, given: BatchGiven) -> Effect:
        self._given, self._committed = given, {}
        self.phase = Phase.LOOKING
        return ReadDecision()

    def _looked(self, read: DecisionRead) -> Effect:
        self._judge_found(read.decision)
        self.phase = Phase.FENCING
        return Fence()

    def _fenced(self, _: Fenced) -> Effect:
        self.phase = Phase.READING
        return ReadDecision()

    def _read(self, read: DecisionRead) -> Effect:
        self._judge_found(read.decision)
        self.decision = read.decision
        self.phase = Phase.LISTING
        return ListOpen()

    def _judge_found(self, found: Decision | None) -> None:
        if self.generation and (found is None or found.generation != self.generation):
            raise SinkStopped(
                f"Another driver of sink {self.sink_id} has taken over while this one had nothing "
                "to do, so this one ends. Only one query may use a sink_id at a time."
            )
        judge(self.sink_id, found, self._given, self._terms)

    def _listed(self, listed: OpenListed) -> Effect:
        generations = [generation_of(self.sink_id, name) for name in listed.names]
        self._open = listed.names
        before = self.decision or Decision(generation=0, query_id=self._given.query_id)
        newest = max(before.generation, *(g or 0 for g in generations), 0)
        self.decision = before.claimed(newest + 1)
        self.phase = Phase.CLAIMING
        return WriteDecision(self.decision)

    def _claimed(self, _: ControlCommitted) -> Effect:
        assert self.decision is not None
        self.generation = self.decision.generation
        self.phase = Phase.RECOVERING
        return CommitChildren(self.decision.unfinished)

    def _claim_in_doubt(self, doubt: ControlInDoubt) -> Effect:
        raise SinkStopped(
            f"Another driver of sink {self.sink_id} took over while this one started "
            f"({doubt.reason}). Only one query may use a sink_id at a time. Nothing was written by "
            "this one; if no other one runs, start it again."
        )

    def _recovered(self, _: ChildrenCommitted) -> Effect:
        self.phase = Phase.SWEEPING
        return AbortChildren(self._sweepable(self._open))

    def _swept(self, _: ChildrenAborted) -> Effect:
        return self._judged()

    # --- a batch

    def _next(self, given: BatchGiven) -> Effect:
        if given.is_long_after:
            return self._begin(given)
        self._given = given
        return self._judged()

    def _judged(self) -> Effect:
        verdict = judge(self.sink_id, self.decision, self._given, self._terms)
        if verdict is Verdict.SKIP:
            self.phase = Phase.READY
            return BatchOver(was_written=False)
        self.phase = Phase.WRITING
        if self.mode is Mode.DRIVER:
            self.decision = self._decided(())
            return WriteBatch(self.decision)
        return RunTasks(self.generation, self._given.batch_id, self._given_back())

    def _written(self, done: TasksDone) -> Effect:
        _require_one_report_each(done.reports)
        children = tuple(r.child for r in done.reports if r.child is not None)
        self.decision = self._decided(children)
        self.phase = Phase.DECIDING
        return WriteDecision(self.decision)

    def _decided(self, children: tuple[Any, ...]) -> Decision:
        return Decision(
            generation=self.generation,
            query_id=self._given.query_id,
            batch_id=self._given.batch_id,
            decided_by=self.generation,
            children=children,
            is_done=not children,
            digest=self._given.digest,
        )

    def _in_doubt(self, _: ControlInDoubt) -> Effect:
        self.phase = Phase.READING_AGAIN
        return ReadDecision()

    def _read_again(self, read: DecisionRead) -> Effect:
        found, wanted = read.decision, self.decision
        assert wanted is not None
        if found is not None and (found.decided_by, found.batch_id) == (
            wanted.decided_by,
            wanted.batch_id,
        ):
            return self._decision_stands(ControlCommitted())
        self._last_word = SinkStopped(
            f"Batch {wanted.batch_id} of sink {self.sink_id} was not decided: another driver took "
            "over, or the control transaction timed out. Nothing of the batch is visible, and it "
            "will be written again in full. Start the query again, if no other one has its place."
        )
        self.decision = found
        self.phase = Phase.LISTING_FAILED
        return ListOpen()

    def _decision_stands(self, _: ControlCommitted) -> Effect:
        assert self.decision is not None
        if self.mode is Mode.DRIVER:
            return self._over()
        self.phase = Phase.COMMITTING
        return CommitChildren(self.decision.children)

    def _committed_all(self, _: ChildrenCommitted) -> Effect:
        self.phase = Phase.LISTING_LEFT
        return ListOpen()

    def _refused(self, refused: ChildrenRefused) -> Effect:
        """An alarm, and a record of it: once the id has expired, nobody could tell any more."""
        assert self.decision is not None
        self.decision = self.decision.without(refused.names)
        self._last_word = rows_missing(self.sink_id, self.decision, refused.reason)
        self.phase = Phase.ALARMING
        return WriteDecision(self.decision)

    def _alarmed(self, _: ControlCommitted | ControlInDoubt) -> Effect:
        assert self._last_word is not None
        raise self._last_word

    def _listed_left(self, listed: OpenListed) -> Effect:
        self.phase = Phase.SWEEPING_LEFT
        return AbortChildren(self._sweepable(listed.names))

    def _swept_left(self, _: ChildrenAborted) -> Effect:
        assert self.decision is not None
        if self.decision.is_done:  # nothing was written
            return self._over()
        self.phase = Phase.FINISHING
        return WriteDecision(self.decision.done())

    def _finished(self, _: ControlCommitted) -> Effect:
        assert self.decision is not None
        self.decision = self.decision.done()
        for child in self.decision.children:
            self._committed.pop(child.transactional_id, None)
            self._committed[child.transactional_id] = None
        for name in list(self._committed)[: -2 * GIVEN_BACK_MAX]:
            del self._committed[name]
        return self._over()

    def _finish_in_doubt(self, doubt: ControlInDoubt) -> Effect:
        raise SinkStopped(
            f"Batch {self._given.batch_id} of sink {self.sink_id} is written, but another driver "
            f"has taken over ({doubt.reason}), so this one ends. If no other one runs, start the "
            "query again: nothing is lost or doubled."
        )

    def _over(self) -> Effect:
        self.phase = Phase.READY
        return BatchOver(was_written=True)

    def _given_back(self) -> tuple[str, ...]:
        """Ids that may be used again: those of the last decision only after the next one.

        A driver that comes after a crash may have to commit those once more, and must find them as
        they were.
        """
        last = {c.transactional_id for c in self.decision.children} if self.decision else set()
        names = [name for name in self._committed if name not in last]
        return tuple(names[-GIVEN_BACK_MAX:])

    # --- what is left over

    def _sweepable(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Of open children: those that nobody will commit, and that are ours to judge."""
        children = self.decision.children if self.decision is not None else ()
        kept = {child.transactional_id for child in children}
        swept = tuple(n for n in names if n not in kept and self._is_ours(n))
        for name in swept:  # an abort may arrive twice: never again, then
            self._committed.pop(name, None)
        return swept

    def _is_ours(self, name: str) -> bool:
        generation = generation_of(self.sink_id, name)
        return generation is not None and generation <= self.generation

    def _tasks_failed(self, _: TasksFailed) -> Effect:
        if self.mode is Mode.DRIVER:
            return self._failed()
        self.phase = Phase.LISTING_FAILED
        return ListOpen()

    def _listed_failed(self, listed: OpenListed) -> Effect:
        self.phase = Phase.SWEEPING_FAILED
        return AbortChildren(self._sweepable(listed.names))

    def _swept_failed(self, _: ChildrenAborted) -> Effect:
        if self._last_word is not None:
            raise self._last_word
        return self._failed()


def _require_one_report_each(reports: tuple[TaskReport, ...]) -> None:
    found = sorted(report.partition_id for report in reports)
    if found != list(range(len(found))):
        raise SinkStopped(
            f"The tasks of the batch reported partitions {found[:20]}, which are not each one "
            "once: nothing was decided. This is a fault of the sink or of Spark; please report it."
        )


_P = Phase
RULES: Mapping[tuple[Phase, type], Callable[[SinkProtocol, Any], Effect]] = {
    (_P.IDLE, BatchGiven): SinkProtocol._begin,
    (_P.LOOKING, DecisionRead): SinkProtocol._looked,
    (_P.FENCING, Fenced): SinkProtocol._fenced,
    (_P.READING, DecisionRead): SinkProtocol._read,
    (_P.LISTING, OpenListed): SinkProtocol._listed,
    (_P.CLAIMING, ControlCommitted): SinkProtocol._claimed,
    (_P.CLAIMING, ControlInDoubt): SinkProtocol._claim_in_doubt,
    (_P.RECOVERING, ChildrenCommitted): SinkProtocol._recovered,
    (_P.RECOVERING, ChildrenRefused): SinkProtocol._refused,
    (_P.SWEEPING, ChildrenAborted): SinkProtocol._swept,
    (_P.READY, BatchGiven): SinkProtocol._next,
    (_P.WRITING, TasksDone): SinkProtocol._written,
    (_P.WRITING, TasksFailed): SinkProtocol._tasks_failed,
    (_P.WRITING, ControlCommitted): SinkProtocol._decision_stands,
    (_P.WRITING, ControlInDoubt): SinkProtocol._in_doubt,
    (_P.DECIDING, ControlCommitted): SinkProtocol._decision_stands,
    (_P.DECIDING, ControlInDoubt): SinkProtocol._in_doubt,
    (_P.READING_AGAIN, DecisionRead): SinkProtocol._read_again,
    (_P.COMMITTING, ChildrenCommitted): SinkProtocol._committed_all,
    (_P.COMMITTING, ChildrenRefused): SinkProtocol._refused,
    (_P.LISTING_LEFT, OpenListed): SinkProtocol._listed_left,
    (_P.SWEEPING_LEFT, ChildrenAborted): SinkProtocol._swept_left,
    (_P.ALARMING, ControlCommitted): SinkProtocol._alarmed,
    (_P.ALARMING, ControlInDoubt): SinkProtocol._alarmed,
    (_P.FINISHING, ControlCommitted): SinkProtocol._finished,
    (_P.FINISHING, ControlInDoubt): SinkProtocol._finish_in_doubt,
    (_P.LISTING_FAILED, OpenListed): SinkProtocol._listed_failed,
    (_P.SWEEPING_FAILED, ChildrenAborted): SinkProtocol._swept_failed,
}
