"""The protocol of a dual writer, which decides the next step of one name in one process.

The file does no I/O. `step(event)` returns the next effect (steps.py). The commit of the database
is the decision.

    At a start
    claim a generation       older sessions can no longer commit in the database
    of each older session    commit in Kafka the transactions that the table has as committed,
                             then fence the session, which aborts its other transactions
    InitProducerId           of an id that was never used before; after a lost answer, of
                             yet another id, because a delayed request aborts the open
                             transaction of its id when it arrives, decided or not

    In each transaction
    the application's block
    prepare                  all records are acknowledged, and no timeout ends the transaction
    decide                   insert the decision's row in the application's database transaction,
                             check the generation in it, and COMMIT
    complete                 EndTxn in Kafka

When the answer to COMMIT is lost, the writer reads the table on another connection, and inserts
`aborted` if there is no row. A commit that is still under way then fails by the table's key. An
interrupted commit (a cancelled task, Ctrl-C) is treated like a lost answer. A transaction that is
decided in the table counts, even while Kafka cannot be reached. It is completed before the next
transaction, by the next start, or by a check-back.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ...wire.errors import KafkaError
from . import steps, stop_words
from .steps import EMPTY, DecidedOutcome, TransactionKey, WriterPhase

FINISHED_MAX = 100  # rows that are deleted with one decision
AMID = frozenset(
    {
        WriterPhase.OPENING,
        WriterPhase.OPEN,
        WriterPhase.PREPARING,
        WriterPhase.DECIDING,
        WriterPhase.RESOLVING,
        WriterPhase.COMPLETING,
        WriterPhase.SUSPECTING,
        WriterPhase.ROLLING_BACK,
        WriterPhase.ABORTING,
    }
)


class WriterProtocol:
    """The state machine of one writer, from its start to its end. An error may stop it for ever."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.phase = WriterPhase.NEW
        self.transactional_id = ""
        self.generation = 0
        self._older: list[str] = []
        self._decided: list[TransactionKey] = []  # by the first session in `_older`
        self._key: TransactionKey | None = None  # the transaction that is being ended
        self._finished: list[TransactionKey] = []
        self._empty_count = 0
        self._reason: BaseException | None = None  # why the block was undone
        self._owed: steps.Effect | None = None
        self._is_committed = False
        self._stopped: BaseException | None = None

    def step(self, event: steps.Event) -> steps.Effect:
        """Take an event and return the next effect, or raise the error that stopped the writer."""
        if self._stopped is not None:
            # the caller that was cancelled is not this one
            if not isinstance(self._stopped, Exception):
                raise stop_words.interrupted(self.name, self._stopped)
            raise self._stopped
        rule = self.RULES.get((self.phase, type(event)))
        assert rule is not None, f"{type(event).__name__} does not fit {self.phase.name}"
        return rule(self, event)

    @property
    def stopped_by(self) -> BaseException | None:
        """The error that stopped the writer, or None while it works."""
        return self._stopped

    @property
    def is_amid(self) -> bool:
        """Return whether a block has begun and not ended. `resume` ends such a block."""
        return self.phase in AMID

    def resume(self, reason: BaseException) -> steps.Effect:
        """Continue after an interruption at any point. Return the next effect.

        The progress of the last effect is unknown, so the effect is repeated or undone.
        """
        match self.phase:
            case WriterPhase.OPENING | WriterPhase.OPEN | WriterPhase.PREPARING:
                return self._undo(reason)
            case WriterPhase.DECIDING:
                return self._in_doubt(steps.DatabaseInDoubt(reason))
            case WriterPhase.ROLLING_BACK:
                return steps.RollBack()
            case WriterPhase.ABORTING:
                return steps.AbortOwn()
            case WriterPhase.SUSPECTING:
                return steps.ReadGeneration(self.name)
            case phase:
                assert self._key is not None
                if phase is WriterPhase.RESOLVING:
                    return steps.ReadOrAbort(self._key)
                assert phase is WriterPhase.COMPLETING, phase
                return steps.EndAsDecided(self._key, is_commit=True)

    def stop(self, reason: BaseException) -> BaseException:
        """Stop the writer and return `reason`. The next start ends the open transaction."""
        self.phase, self._stopped = WriterPhase.STOPPED, self._stopped or reason
        return reason

    # --- the start

    def _started(self, event: steps.SessionStarted) -> steps.Effect:
        self.transactional_id, self._older = event.transactional_id, []
        self.phase = WriterPhase.CLAIMING
        return steps.Claim(self.name, event.transactional_id)

    def _claimed(self, event: steps.Claimed) -> steps.Effect:
        self.generation, self._older = event.generation, list(event.older_sessions)
        return self._next_session()

    def _next_session(self) -> steps.Effect:
        if self._older:
            self.phase = WriterPhase.READING
            return steps.ReadDecisions(self._older[0])
        self.phase = WriterPhase.INITIALIZING
        return steps.Initialize(self.transactional_id)

    def _read(self, event: steps.DecisionsRead) -> steps.Effect:
        self._decided = list(event.keys)
        return self._roll_forward()

    def _roll_forward(self, _: steps.Event | None = None) -> steps.Effect:
        if not self._decided:
            self.phase = WriterPhase.FENCING
            return steps.FenceSession(self._older[0])
        self._key, self.phase = self._decided.pop(0), WriterPhase.ROLLING_FORWARD
        return steps.EndAsDecided(self._key, is_commit=True)

    def _not_rolled_forward(self, event: steps.EndRefused) -> steps.Effect:
        if event.is_overruled:
            assert self._key is not None
            raise self.stop(stop_words.overruled(self._key, event.reason))
        return self._roll_forward()  # its own session has done it, and begun the next one

    def _start_unanswered(self, event: steps.EndUnanswered) -> steps.Effect:
        raise self.stop(event.reason or TimeoutError())

    def _fenced(self, _: steps.SessionFenced) -> steps.Effect:
        self.phase = WriterPhase.DELETING
        return steps.DeleteSession(self._older[0])

    def _deleted(self, _: steps.SessionDeleted) -> steps.Effect:
        del self._older[0]
        return self._next_session()

    def _initialized(self, event: steps.Initialized) -> steps.Effect:
        self._key = None
        if not event.is_certain:
            self.phase = WriterPhase.NEW
            return steps.StartSession()
        self.phase = WriterPhase.READY
        return steps.BecomeReady()

    # --- a transaction

    def _begun(self, _: steps.BlockBegun) -> steps.Effect:
        self._key = self._reason = None
        self._is_committed = False
        self.phase = WriterPhase.OPENING
        return steps.BeginBoth()

    def _open(self, _: steps.BothBegun) -> steps.Effect:
        self.phase = WriterPhase.OPEN
        return steps.RunBlock()

    def _block_done(self, _: steps.BlockDone) -> steps.Effect:
        self.phase = WriterPhase.PREPARING
        return steps.Prepare()

    def _prepared(self, event: steps.Prepared) -> steps.Effect:
        if event.key is None:
            self._empty_count += 1
            self._key = TransactionKey(self.transactional_id, EMPTY, self._empty_count)
        else:
            self._key = event.key
        return self._decide()

    def _decide(self) -> steps.Effect:
        assert self._key is not None
        self.phase = WriterPhase.DECIDING
        finished = tuple(self._finished[:FINISHED_MAX])
        return steps.Decide(self.name, self._key, self.generation, finished)

    def _committed(self, _: steps.DatabaseCommitted) -> steps.Effect:
        del self._finished[:FINISHED_MAX]
        return self._complete()

    def _complete(self) -> steps.Effect:
        assert self._key is not None
        self._is_committed = True
        self.phase = WriterPhase.COMPLETING
        return steps.EndAsDecided(self._key, is_commit=True)

    def _completed(self, _: steps.EndedAsDecided) -> steps.Effect:
        assert self._key is not None
        self._finished.append(self._key)
        self.phase = WriterPhase.READY
        return steps.EndBlock(is_committed=True)

    def _unanswered(self, event: steps.EndUnanswered) -> steps.Effect:
        assert self._key is not None
        self._owed = steps.EndAsDecided(self._key, is_commit=True)
        self.phase = WriterPhase.OWING
        return steps.EndBlock(is_committed=True)

    def _not_completed(self, event: steps.EndRefused) -> steps.Effect:
        assert self._key is not None
        self._reason = event.reason
        if event.is_overruled:
            raise self.stop(stop_words.overruled(self._key, event.reason))
        self.phase = WriterPhase.SUSPECTING
        return steps.ReadGeneration(self.name)

    def _generation_read(self, event: steps.GenerationRead) -> steps.Effect:
        assert self._key is not None
        if event.generation <= self.generation:
            raise self.stop(stop_words.overruled(self._key, self._reason))
        # A successor has fenced this session, after committing its decided transactions.
        stopped = self.stop(stop_words.superseded(self.name, self.generation))
        if self._owed is not None:  # owed by the last block; the next one must not begin
            raise stopped
        return steps.EndBlock(is_committed=True)

    # --- owed by an earlier transaction

    def _begun_owing(self, _: steps.BlockBegun) -> steps.Effect:
        assert self._owed is not None
        self.phase = WriterPhase.COMPLETING if self._is_committed else WriterPhase.ABORTING
        return self._owed

    def _owed_completed(self, event: steps.EndedAsDecided) -> steps.Effect:
        """Continue after EndTxn was answered.

        The current block ends, or the next one begins if EndTxn was still due for the block before
        it.
        """
        if self._owed is None:
            return self._completed(event)
        assert self._key is not None
        self._finished.append(self._key)
        self._owed = None
        return self._begun(steps.BlockBegun())

    def _owed_unanswered(self, event: steps.EndUnanswered) -> steps.Effect:
        if self._owed is None:
            return self._unanswered(event)
        self.phase = WriterPhase.OWING
        assert event.reason is not None
        raise event.reason

    # --- undoing a block

    def _not_begun(self, event: steps.BlockFailed) -> steps.Effect:
        return self._undo(event.reason)

    def _refused(self, event: steps.DatabaseRefused) -> steps.Effect:
        return self._undo(event.reason)

    def _in_doubt(self, event: steps.DatabaseInDoubt) -> steps.Effect:
        assert self._key is not None
        self._reason = event.reason
        self.phase = WriterPhase.RESOLVING
        return steps.ReadOrAbort(self._key)

    def _resolved(self, event: steps.OutcomeRead) -> steps.Effect:
        if event.outcome is DecidedOutcome.COMMITTED:
            return self._committed(steps.DatabaseCommitted())
        if event.outcome is None:
            assert self._key is not None
            raise self.stop(stop_words.never_known(self._key, self._reason))
        return self._undo(self._reason)

    def _undo(self, reason: BaseException | None) -> steps.Effect:
        self._reason = reason
        self.phase = WriterPhase.ROLLING_BACK
        return steps.RollBack()

    def _rolled_back(self, _: steps.RolledBack) -> steps.Effect:
        self.phase = WriterPhase.ABORTING
        return steps.AbortOwn()

    def _aborted(self, _: steps.Aborted) -> steps.Effect:
        # A row `aborted` of this session stays: the COMMIT that it stopped may be under way yet.
        if self._owed is not None:
            self._owed = None
            return self._begun(steps.BlockBegun())
        return self._end_undone(WriterPhase.READY)

    def _abort_unanswered(self, event: steps.EndUnanswered) -> steps.Effect:
        if self._owed is not None:
            return self._owed_unanswered(event)
        self._owed = steps.AbortOwn()
        return self._end_undone(WriterPhase.OWING)

    def _abort_refused(self, event: steps.EndRefused) -> steps.Effect:
        """Stop the writer, because its session was fenced, which aborted the transaction."""
        stopped = stop_words.superseded(self.name, self.generation)
        stopped.__cause__ = event.reason
        if self._owed is not None:
            raise self.stop(stopped)
        if isinstance(self._reason, KafkaError):  # Kafka's error for the same
            self._reason = stopped
        ending = self._end_undone(WriterPhase.STOPPED)
        self.stop(stopped)
        return ending

    def _end_undone(self, phase: WriterPhase) -> steps.Effect:
        self.phase = phase
        return steps.EndBlock(is_committed=False, reason=self._reason)

    RULES: ClassVar[Mapping[tuple[WriterPhase, type], Callable[[Any, Any], steps.Effect]]] = {
        (WriterPhase.NEW, steps.SessionStarted): _started,
        (WriterPhase.CLAIMING, steps.Claimed): _claimed,
        (WriterPhase.READING, steps.DecisionsRead): _read,
        (WriterPhase.ROLLING_FORWARD, steps.EndedAsDecided): _roll_forward,
        (WriterPhase.ROLLING_FORWARD, steps.EndRefused): _not_rolled_forward,
        (WriterPhase.ROLLING_FORWARD, steps.EndUnanswered): _start_unanswered,
        (WriterPhase.FENCING, steps.SessionFenced): _fenced,
        (WriterPhase.DELETING, steps.SessionDeleted): _deleted,
        (WriterPhase.INITIALIZING, steps.Initialized): _initialized,
        (WriterPhase.READY, steps.BlockBegun): _begun,
        (WriterPhase.OWING, steps.BlockBegun): _begun_owing,
        (WriterPhase.OPENING, steps.BothBegun): _open,
        (WriterPhase.OPENING, steps.BlockFailed): _not_begun,
        (WriterPhase.OPEN, steps.BlockDone): _block_done,
        (WriterPhase.OPEN, steps.BlockFailed): _not_begun,
        (WriterPhase.PREPARING, steps.Prepared): _prepared,
        (WriterPhase.PREPARING, steps.BlockFailed): _not_begun,
        (WriterPhase.DECIDING, steps.DatabaseCommitted): _committed,
        (WriterPhase.DECIDING, steps.DatabaseRefused): _refused,
        (WriterPhase.DECIDING, steps.DatabaseInDoubt): _in_doubt,
        (WriterPhase.RESOLVING, steps.OutcomeRead): _resolved,
        (WriterPhase.COMPLETING, steps.EndedAsDecided): _owed_completed,
        (WriterPhase.COMPLETING, steps.EndRefused): _not_completed,
        (WriterPhase.COMPLETING, steps.EndUnanswered): _owed_unanswered,
        (WriterPhase.SUSPECTING, steps.GenerationRead): _generation_read,
        (WriterPhase.ROLLING_BACK, steps.RolledBack): _rolled_back,
        (WriterPhase.ABORTING, steps.Aborted): _aborted,
        (WriterPhase.ABORTING, steps.EndUnanswered): _abort_unanswered,
        (WriterPhase.ABORTING, steps.EndRefused): _abort_refused,
    }
