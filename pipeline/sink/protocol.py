"""The driver's side of the exactly-once sink, which decides what one driver does next for one sink.

The file does no I/O. A batch is a generator that yields effects and gets events (steps.py). Each
task attempt has one prepared transaction, a child of the sink. One record, the decision, names the
children that count, and then all of them are committed. The driver writes decisions to a topic with
the control id, its transactional id. The order of the steps is the protocol:

At the first batch of a run
    read the decision          so that a query that must not write stops before it fences another
    fence                      older drivers cannot decide any more
    read it again              the decision is now the last decision of older drivers
    claim a generation         above all others; a superseded driver sweeps only its own and
                               older generations, not the children of its successor
    roll forward               commit the children of the decision, some of which may be
                               committed (mode "transactional": or take the decision back)
    sweep                      abort the open children of own and older generations
At each batch
    check                      skip what is decided (batch_check.py)
    run the tasks              each task with rows leaves a transaction open
    ask                        mode "transactional": whether all children can still be committed
    decide                     one record, in a transaction of the control id
    ask                        mode "transactional": once more, since the decision may be slow
    roll forward, sweep        and record that the decision is done
Between batches
    sweep                      abort the open transactions of late attempts (idle_sweep.py)

After a long time without batches the start is repeated, since the control id may have expired. A
driver that finds another generation than its own stops. Otherwise it claims its own generation once
more.

With mode "driver" the driver itself writes a batch, in the transaction of its decision.

With mode "transactional" the cluster may abort a decided child, when an outage was longer than its
timeout. Then the decision is taken back, or the batch is torn (decided_children.py).

A decision is in doubt if the control id was taken over, or its transaction timed out. Then the
topic is read again. If the decision is there it counts, whichever driver is current. A claim in
doubt stops the driver, since two drivers could have claimed the same generation.
"""

from collections.abc import Iterable
from typing import Any

from ...client import PreparedTransaction
from . import steps, stop_words
from .batch_check import BatchAction, Terms, check_batch
from .decided_children import DecidedChildren, Part
from .decision import Decision
from .modes import Mode
from .names import Leftovers, check_sink_id, generation_of
from .steps import Phase
from .stop_words import SinkStopped

GIVEN_BACK_MAX = 2_000  # reusable ids in a task's spec; more if a batch has used more


class SinkProtocol(DecidedChildren):
    """The protocol of one sink in one driver. After SinkStopped it stays stopped."""

    def __init__(
        self, sink_id: str, *, mode: Mode = Mode.PREPARED, terms: Terms | None = None
    ) -> None:
        self.sink_id, self.mode = check_sink_id(sink_id), mode
        self.phase = Phase.IDLE
        self.generation = 0  # 0: before a claim
        self.decision: Decision | None = None
        self.terms = terms or Terms()
        self._given = steps.BatchGiven(query_id="", batch_id=0)
        self._batch: Part[bool] | None = None  # while one is at work
        self._effect: steps.Effect | None = None  # the last one of this batch
        self.reusable_ids: dict[str, None] = {}  # ids of this generation, the newest last
        self._given_back_max = GIVEN_BACK_MAX
        self.leftovers: Leftovers | None = None  # while no batch runs, where that is known
        self._stopped: SinkStopped | None = None
        self._last_word: SinkStopped | None = None  # raised once the sweep is over

    def step(self, event: steps.Event) -> steps.Effect:
        """Apply an event and return the next effect.

        Raises the same SinkStopped again once stopped.
        """
        if self._stopped is not None:
            raise self._stopped
        self.leftovers = None
        try:
            return self._failed() if isinstance(event, steps.Failed) else self._go_on(event)
        except SinkStopped as stop:
            self.phase, self._stopped = Phase.STOPPED, stop
            raise

    def _go_on(self, event: steps.Event) -> steps.Effect:
        expected = steps.ANSWERS[type(self._effect)] if self._batch else (steps.BatchGiven,)
        assert isinstance(event, expected), f"{type(event).__name__} does not fit {self._effect}"
        answer: Any = event
        if self._batch is None:
            assert isinstance(event, steps.BatchGiven)
            self._given, self._batch, answer = event, self._run(), None
        try:
            self._effect = self._batch.send(answer)
        except StopIteration as end:
            self._batch = self._effect = None
            if self.phase is not Phase.IDLE:
                self.phase, self.leftovers = Phase.READY, self._leftovers()
            return steps.BatchOver(was_written=end.value)
        return self._effect

    def swept(self, names: Iterable[str]) -> None:
        """Exclude swept ids from reuse, because their abort request may arrive again later."""
        for name in names:
            self.reusable_ids.pop(name, None)

    def _failed(self) -> steps.Effect:
        """End the batch after a failed effect, so that the next batch reads the decision again.

        The effect may have been executed or not. Raises SinkStopped if the sink must stop.
        """
        assert self._batch is not None
        self._batch.close()
        self._batch = self._effect = None
        if self._last_word is not None:
            raise self._last_word
        self._forget()
        return steps.BatchOver(was_written=False)

    def _forget(self) -> None:
        self.phase, self.generation = Phase.IDLE, 0

    def _run(self) -> Part[bool]:
        """Yield the effects of one batch. Return False if the batch was already written."""
        if not self.generation or self._given.is_long_after:
            yield from self._start()
        return (yield from self._check_and_write())

    # --- the start of a run

    def _start(self) -> Part[None]:
        self.phase = Phase.STARTING
        read = yield steps.ReadDecision()
        self._check_found(read.decision)
        yield steps.FenceControlId()
        read = yield steps.ReadDecision()
        self._check_found(read.decision)
        self.decision = read.decision
        listed = yield steps.ListOpen()
        self.decision = self._claim(listed.names)
        claimed = yield steps.WriteDecision(self.decision)
        if isinstance(claimed, steps.ControlInDoubt):
            raise stop_words.taken_over_at_start(self.sink_id, claimed.reason)
        self.generation = self.decision.generation
        yield from self._take_up(Phase.RECOVERING)
        yield steps.AbortChildren(self._sweepable(listed.names))

    def _check_found(self, found: Decision | None) -> None:
        if self.generation and (found is None or found.generation != self.generation):
            raise stop_words.taken_over_while_idle(self.sink_id)
        check_batch(self.sink_id, found, self._given, self.terms)

    def _claim(self, open_names: tuple[str, ...]) -> Decision:
        generations = [generation_of(self.sink_id, name) for name in open_names]
        before = self.decision or Decision(generation=0, query_id=self._given.query_id)
        newest = max(before.generation, *(g or 0 for g in generations), 0)
        if not self.generation or newest > self.generation:
            self.reusable_ids, newest = {}, newest + 1  # else it still holds its generation
        return before.claimed(newest)

    # --- a batch

    def _check_and_write(self) -> Part[bool]:
        action = check_batch(self.sink_id, self.decision, self._given, self.terms)
        if action is BatchAction.SKIP:
            return False
        self.phase = Phase.WRITING
        write = self._write_in_driver if self.mode is Mode.DRIVER else self._write_in_tasks
        return (yield from write())

    def _write_in_driver(self) -> Part[bool]:
        self.decision = self._decided(())
        written = yield steps.WriteBatch(self.decision)
        if isinstance(written, steps.TasksFailed):
            self._forget()
            return False
        if isinstance(written, steps.ControlInDoubt):
            yield from self._read_again(self.decision)
        return True

    def _write_in_tasks(self) -> Part[bool]:
        batch_id = self._given.batch_id
        done = yield steps.RunTasks(self.generation, batch_id, self._given_back())
        if isinstance(done, steps.TasksFailed):
            yield from self._sweep_failed()
            return False
        _require_one_report_each(done.reports)
        children = tuple(r.child for r in done.reports if r.child is not None)
        if self.mode is Mode.TRANSACTIONAL and children:
            found = yield steps.DescribeChildren(children)
            if late := len(children) - len(set(found.open) - set(found.expiring)):
                words = self.sink_id, batch_id, late, len(children)
                self._last_word = stop_words.took_too_long(*words)
                yield from self._sweep_failed()
        self.decision, self.phase = self._decided(children), Phase.DECIDING
        decided = yield steps.WriteDecision(self.decision)
        if isinstance(decided, steps.ControlInDoubt):
            yield from self._read_again(self.decision)
        if not (yield from self._take_up(Phase.COMMITTING)):
            yield steps.AbortChildren(())
            return (yield from self._check_and_write())
        yield from self._sweep()
        if not self.decision.is_done:  # something was written
            self.phase = Phase.FINISHING
            finished = yield steps.WriteDecision(self.decision.done())
            if isinstance(finished, steps.ControlInDoubt):
                raise stop_words.written_and_taken_over(self.sink_id, batch_id, finished.reason)
            self.decision = self.decision.done()
            self._give_back(self.decision.children)
        return True

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

    def _read_again(self, wanted: Decision) -> Part[None]:
        """Read the topic to find out whether the decision in doubt was committed.

        Returns if it was. Otherwise the sink sweeps and stops.
        """
        self.phase = Phase.WRITING
        read = yield steps.ReadDecision()
        found: Decision | None = read.decision
        place = wanted.decided_by, wanted.batch_id
        if found is None or (found.decided_by, found.batch_id) != place:
            self._last_word = stop_words.not_decided(self.sink_id, wanted.batch_id)
            self.decision = found
            yield from self._sweep_failed()

    def _give_back(self, children: tuple[PreparedTransaction, ...]) -> None:
        # With fewer than a batch takes, every batch would use new ids, without end.
        self._given_back_max = max(self._given_back_max, len(children))
        for child in children:
            self.reusable_ids.pop(child.transactional_id, None)
            self.reusable_ids[child.transactional_id] = None
        for name in list(self.reusable_ids)[: -2 * self._given_back_max]:
            del self.reusable_ids[name]

    def _given_back(self) -> tuple[str, ...]:
        """Return the ids that attempts may reuse, except those of the last decision's children.

        A driver that starts after a crash may have to commit these children again, and must find
        them unchanged.
        """
        last = {c.transactional_id for c in self.decision.children} if self.decision else set()
        names = [name for name in self.reusable_ids if name not in last]
        return tuple(names[-self._given_back_max :])

    # --- what is left over

    def _sweepable(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the open children that may be aborted, and exclude their ids from reuse."""
        swept = self._leftovers().among(names)
        self.swept(swept)
        return swept

    def _leftovers(self) -> Leftovers:
        children = self.decision.children if self.decision is not None else ()
        kept = frozenset(child.transactional_id for child in children)
        return Leftovers(self.sink_id, self.generation, kept)

    def _sweep(self) -> Part[None]:
        listed = yield steps.ListOpen()
        yield steps.AbortChildren(self._sweepable(listed.names))

    def _sweep_failed(self) -> Part[None]:
        """Abort the open children of a failed batch. Then stop the sink or start over.

        It stops if a SinkStopped was recorded.
        """
        yield from self._sweep()
        if self._last_word is not None:
            raise self._last_word
        self.leftovers = self._leftovers()  # attempts of a failed batch may live on
        self._forget()


def _require_one_report_each(reports: tuple[steps.TaskReport, ...]) -> None:
    found = sorted(report.partition_id for report in reports)
    if found != list(range(len(found))):
        raise stop_words.reports_do_not_fit(found)
