"""The leader of one shard in one term, which turns requests into decisions and records.

The `Decision` about a request is a refusal, or the next record of the transactional id. It comes
from pure rules (coordinator/transactions/decisions.py). The Raft group makes the record durable,
and checks the decision again (coordinator/transactions/shard.py). pending_transactions.py holds the
state in between. The record that prepares a commit or abort is written, then its markers are sent,
and when all markers are written the transaction is complete. The record of the completion is not
written immediately. Requests already see it, the next decision about the id includes it in its own
command, and without such a decision it is soon written by itself. If the completion were lost, the
markers would be sent again.

The outcome of a write that timed out is read from the log after a barrier, and never guessed. When
the term ends all in-memory state is dropped.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from ...coordinator.raft.group import RaftGroup
from ...coordinator.raft.outcomes import DefinitelyNot
from ...coordinator.transactions.additions import Addition
from ...coordinator.transactions.commands import Write, WriteRecords, encode_transaction_command
from ...coordinator.transactions.connection_fence import ConnectionFence
from ...coordinator.transactions.decisions import (
    Change,
    Decision,
    DecisionContext,
    FenceProducer,
    ProducerIdNeeded,
    Refused,
)
from ...coordinator.transactions.messages import TransactionMarker
from ...coordinator.transactions.record import TransactionRecord
from ...coordinator.transactions.settings import TransactionSettings
from ...coordinator.transactions.shard import Applied, TransactionShard
from ...coordinator.transactions.states import (
    AFTER,
    AFTER_ALL_MARKERS,
    AFTER_COMPLETE,
    AFTER_SOME_MARKERS,
    BEFORE,
    IDLE,
    PREPARED,
    TransactionState,
)
from ...runtime.sliced_work import Steps
from ...wire.errors import ErrorCode, KafkaError
from ...wire.identifiers import TopicPartition
from .joint_additions import AdditionPorts, JointAdditions, Looked
from .leader_ports import LeaderPorts
from .marker_sender import MarkerTask
from .pending_transactions import PendingTransactions

LOG_INTERVAL_S = 60.0


class ShardLimits:
    """The limits of one shard in one term, beyond which requests are refused."""

    def __init__(self, shard: TransactionShard, settings: TransactionSettings) -> None:
        self._shard = shard
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._logged_s: dict[str, float] = {}
        self._log = logging.getLogger(__name__)

    def check_new_id(self) -> ErrorCode:
        """Return NONE if one more transactional id is allowed, else the error."""
        if len(self._shard) < self._settings.ids_max:
            return ErrorCode.NONE
        self._say("transactional ids", "oncelog.transactional.ids.max")
        return ErrorCode.POLICY_VIOLATION

    def check_change(self, old: TransactionRecord | None, new: TransactionRecord) -> ErrorCode:
        """Return NONE if the limits allow the change from `old` to `new`, else the error."""
        if new.state != TransactionState.ONGOING:
            return ErrorCode.NONE
        if len(new.partitions) > self._settings.partitions_max:
            self._say("partitions in a transaction", "oncelog.transaction.partitions.max")
            return ErrorCode.POLICY_VIOLATION
        begins = old is None or old.state != TransactionState.ONGOING
        if begins and len(self._shard.open_ids) >= self._settings.open_max:
            self._say("open transactions", "oncelog.transactions.open.max")
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE

    def _say(self, what: str, key: str) -> None:
        """Log the reason of refusals, once per interval, since the answer has no field for it."""
        now_s = self._loop.time()
        if now_s >= self._logged_s.get(key, 0) + LOG_INTERVAL_S:
            self._logged_s[key] = now_s
            self._log.warning(
                "requests are refused, because there are too many %s. Raise %s to allow more.",
                what,
                key,
            )


WRITE_TIMEOUT_MS = 5_000
RETRY_PAUSE_MS = 200
COMPLETION_DELAY_MS = 20  # how long a completion waits to be included in the id's next decision
COMPLETIONS_PER_COMMAND = 100  # about 2 ms here, and when the command is applied
IDS_A_STEP = 16

Decide = Callable[[TransactionRecord | None, DecisionContext], Decision]


class ShardLeader:
    """The leader of a shard, which after `resign` answers requests with NOT_COORDINATOR."""

    def __init__(
        self,
        shard: TransactionShard,
        raft_group: RaftGroup,
        term: int,
        *,
        settings: TransactionSettings,
        ports: LeaderPorts,
        fence: ConnectionFence,
    ) -> None:
        self.shard = shard
        self.term = term
        self.fence = fence
        self.is_current = True
        self._raft_group = raft_group
        self._settings = settings
        self._ports = ports
        self._loop = asyncio.get_running_loop()
        self._pending = PendingTransactions(settings.held_max)
        self._limits = ShardLimits(shard, settings)
        self._joint_additions = JointAdditions(self._pending)
        self._completion_timer: asyncio.TimerHandle | None = None
        self._log = logging.getLogger(__name__)

    def begin(self) -> None:
        """Send the markers of transactions that earlier leaders decided and did not complete."""
        self._ports.work.begin("prepared transactions", self._resuming())

    def resign(self) -> None:
        self.is_current = False
        if self._completion_timer is not None:
            self._completion_timer.cancel()
        self._ports.work.begin("the end of a transaction shard's term", self._pending.clearing())

    # -- state

    def current(self, transactional_id: str) -> TransactionRecord | None:
        """Return the current record of a transactional id, or None.

        This is the completed transaction as soon as all markers are written, even if not durable
        yet.
        """
        entry = self._pending.get(transactional_id)
        if entry is not None and entry.completion is not None:
            return entry.completion
        return self.shard.get(transactional_id)

    def unmarked(self, transactional_id: str) -> frozenset[TopicPartition]:
        """Return the partitions of the transaction without a written marker."""
        record = self.current(transactional_id)
        entry = self._pending.get(transactional_id)
        if record is None:
            return frozenset()
        if record.state in PREPARED and entry is not None and entry.marking_version:
            return frozenset(entry.unmarked)
        return record.partitions

    # -- requests

    async def execute(
        self,
        transactional_id: str,
        decide: Decide,
        *,
        hold_ms: int = 0,
        waits_for_markers: bool = True,
        ends_with_fence: bool = False,
    ) -> tuple[ErrorCode, Decision | None]:
        """Decide a request, write the decided record, and return the error and the decision.

        decide: called again after each change that it must see. Instead of CONCURRENT_TRANSACTIONS,
        a request waits up to hold_ms for the end of the operation before it. ends_with_fence: a
        decision to fence the producer and abort its transaction (FenceProducer) is written as the
        last one, without another call of `decide`.
        """
        deadline_s = self._loop.time() + hold_ms / 1_000
        fresh_producer_id = None
        while self.is_current:
            entry = self._pending.get(transactional_id)
            is_pending = entry is not None and entry.is_changing
            record = self.current(transactional_id)
            context = DecisionContext(
                is_pending=is_pending,
                now_ms=self._ports.wall_ms(),
                fresh_producer_id=fresh_producer_id,
                serves_v2=self._ports.serves_v2(),
            )
            decision = decide(record, context)
            match decision:
                case Refused(ErrorCode.CONCURRENT_TRANSACTIONS):
                    may_wait = is_pending or waits_for_markers
                    if not may_wait or not await self._pending.hold(transactional_id, deadline_s):
                        return decision.error, decision
                case Refused(error):
                    return error, decision
                case ProducerIdNeeded():
                    if record is None and (error := self._limits.check_new_id()):
                        return error, None
                    try:
                        fresh_producer_id = await self._ports.next_producer_id()
                    except KafkaError:
                        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None
                case FenceProducer(aborted):
                    error = await self._write(transactional_id, aborted)
                    if error or ends_with_fence:
                        return error, decision
                    fresh_producer_id = None
                case Change(new):
                    error = self._limits.check_change(record, new)
                    return error or await self._write(transactional_id, new), decision
                case _:
                    return ErrorCode.NONE, decision
        return ErrorCode.NOT_COORDINATOR, None

    async def add(self, transactional_id: str, addition: Addition) -> ErrorCode:
        """Add partitions to a transaction, and return NONE or an error.

        Other additions of the same id in this turn of the event loop share the write.
        """
        ports = AdditionPorts(look=self._look, limit=self._limits.check_change, write=self._write)
        hold_ms = self._settings.hold_ms
        return await self._joint_additions.add(transactional_id, addition, hold_ms, ports)

    async def remove_expired(self, transactional_ids: list[str]) -> None:
        """Remove the expired ids, except ids with an operation in progress."""
        writes = []
        for name in transactional_ids:
            record = self.shard.get(name)
            if record is not None and record.state in IDLE and self._pending.get(name) is None:
                writes.append(Write.after(name, record, None))
                self.fence.remove(name)
        if writes:
            await self._propose([write.transactional_id for write in writes], writes)

    # -- writing

    def _look(self, transactional_id: str) -> Looked | None:
        """Return the record and the context for a decision, or None when the term has ended."""
        if not self.is_current:
            return None
        entry = self._pending.get(transactional_id)
        is_pending = entry is not None and entry.is_pending
        context = DecisionContext(
            is_pending=is_pending,
            now_ms=self._ports.wall_ms(),
            serves_v2=self._ports.serves_v2(),
        )
        return self.current(transactional_id), context

    def _write(self, transactional_id: str, new: TransactionRecord) -> asyncio.Future[ErrorCode]:
        """Write a record of an id, after the id's completion if that is not durable yet.

        Returns a future of the error.
        """
        entry = self._pending.obtain(transactional_id)
        assert not entry.is_pending
        old = self.shard.get(transactional_id)
        if entry.completion is None:
            writes = [Write.after(transactional_id, old, new)]
        else:
            writes = [
                Write.after(transactional_id, old, entry.completion),
                Write.chained(transactional_id, entry.completion, new),
            ]
        if new.state in PREPARED and not new.partitions:  # no markers are needed
            completion = new.completed(self._ports.wall_ms())
            writes.append(Write.chained(transactional_id, new, completion))
        self._pass(BEFORE.get(new.state))
        written = self._propose([transactional_id], writes)

        def passed(outcome: "asyncio.Future[ErrorCode]") -> None:
            if not outcome.cancelled() and not outcome.result():
                self._pass(AFTER.get(new.state))

        written.add_done_callback(passed)  # called before the callbacks of waiting requests
        return written

    def _propose(self, names: list[str], writes: list[Write]) -> asyncio.Future[ErrorCode]:
        """Propose writes of ids, which are pending until the outcome is known.

        The future is done when the ids are no longer pending, or when the outcome is unknown.
        """
        future: asyncio.Future[ErrorCode] = self._loop.create_future()

        def done(applied: Applied | None, error: Exception | None) -> None:
            code = ErrorCode.NONE
            if error is not None:
                if self.is_current:  # otherwise thousands of lines would report the end of the term
                    self._log.warning(
                        "writing the records of %d transactional ids failed: %s", len(names), error
                    )
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            elif applied is not None and not applied.is_done:
                self._log.error(
                    "the transaction shard refused the records of %d transactional ids: %s",
                    len(names),
                    applied,
                )
                code = ErrorCode.CONCURRENT_TRANSACTIONS
            try:
                if error is None or isinstance(error, DefinitelyNot):
                    self._settle(names)
                else:
                    self._find_out(names)
            finally:
                if not future.done():
                    future.set_result(code)

        command = encode_transaction_command(WriteRecords(self.term, tuple(writes)))
        entries = list(map(self._pending.obtain, names))
        for entry in entries:
            entry.is_pending = True
        try:
            self._raft_group.propose(command, WRITE_TIMEOUT_MS, done)
        except BaseException:  # the write has not begun
            for entry in entries:
                entry.is_pending = False
            raise
        return future

    def _find_out(self, names: list[str]) -> None:
        """Propose a barrier, after which the log shows the outcome of a write with these ids.

        Until then the ids stay pending.
        """

        def done(_: Applied | None, error: Exception | None) -> None:
            if error is None:
                self._settle(names)
            else:
                self._loop.call_later(RETRY_PAUSE_MS / 1_000, self._find_out, names)

        if self.is_current:
            barrier = encode_transaction_command(WriteRecords(self.term, ()))
            self._raft_group.propose(barrier, WRITE_TIMEOUT_MS, done)

    def _settle(self, names: list[str]) -> None:
        """Mark ids as no longer pending, since the outcome of their write is known."""
        for name in names:
            self._attempt(self._settle_one, name)

    def _settle_one(self, name: str) -> None:
        prepared = self._refresh(name)
        entry = self._pending.obtain(name)
        entry.is_pending = False  # after this line nothing may raise, since another write may begin
        if prepared is not None:
            sending = partial(self._send_markers, record=prepared)
            self._loop.call_soon(self._attempt, sending, name)
        if entry.completion is not None:
            self._pending.note_completed(name)
            self._write_completions_in(RETRY_PAUSE_MS)
        entry.wake()
        self._pending.tidy(name)

    def _attempt(self, action: Callable[[str], None], name: str) -> None:
        """Run an action for one transactional id. After an exception run it again later."""
        try:
            if self.is_current:
                action(name)
        except Exception:
            self._log.exception(
                "an action for transactional id %r failed and will be retried", name
            )
            self._loop.call_later(RETRY_PAUSE_MS / 1_000, self._attempt, action, name)

    def _refresh(self, transactional_id: str) -> TransactionRecord | None:
        """Update the in-memory entry of an id from its durable record.

        Returns the record if markers must be sent, else None.
        """
        record = self.shard.get(transactional_id)
        entry = self._pending.obtain(transactional_id)
        if record is None or record.state not in PREPARED:
            entry.completion = None
            entry.marking_version = 0
            entry.unmarked.clear()
        elif entry.marking_version != record.version:
            entry.completion = None
            entry.unmarked = set(record.partitions)
            entry.marking_version = record.version
            return record
        return None

    # -- markers and completions

    def _resuming(self) -> Steps[None]:
        for count, name in enumerate(list(self.shard.prepared_ids), 1):
            if not self.is_current:
                return
            self._attempt(self._resume_one, name)
            if count % IDS_A_STEP == 0:
                yield

    def _resume_one(self, name: str) -> None:
        if (prepared := self._refresh(name)) is not None:
            self._attempt(partial(self._send_markers, record=prepared), name)
        self._pending.tidy(name)

    def _send_markers(self, transactional_id: str, record: TransactionRecord) -> None:
        if not record.partitions:
            self._complete(transactional_id, record)
            return
        marker = TransactionMarker(
            record.producer_id,
            record.producer_epoch,
            self.term,
            record.is_commit,
            (),
            record.client_transaction_version,
            record.version,
        )

        def on_written(partition: TopicPartition) -> None:
            self._marked(transactional_id, record, partition)

        task = MarkerTask(marker=marker, is_wanted=lambda: self.is_current, on_written=on_written)
        self._ports.markers.send(task, sorted(record.partitions))

    def _marked(
        self, transactional_id: str, record: TransactionRecord, partition: TopicPartition
    ) -> None:
        entry = self._pending.get(transactional_id)
        if not self.is_current or entry is None or entry.marking_version != record.version:
            return
        entry.unmarked.discard(partition)
        if entry.unmarked:
            self._pass(AFTER_SOME_MARKERS)
        elif entry.completion is None:
            self._pass(AFTER_ALL_MARKERS)
            self._complete(transactional_id, record)

    def _complete(self, transactional_id: str, record: TransactionRecord) -> None:
        self._pending.complete(transactional_id, record.completed(self._ports.wall_ms()))
        self._write_completions_in(COMPLETION_DELAY_MS)

    def _write_completions_in(self, delay_ms: int) -> None:
        if self._completion_timer is None and self.is_current:
            self._completion_timer = self._loop.call_later(
                delay_ms / 1_000, self._write_completions
            )

    def _write_completions(self) -> None:
        """Write the completions that were not included in a later decision."""
        self._completion_timer = None
        due = self._pending.take_completions(COMPLETIONS_PER_COMMAND)
        if not due:
            return
        writes = [Write.after(name, self.shard.get(name), record) for name, record in due]
        written = self._propose([name for name, _ in due], writes)
        written.add_done_callback(self._completions_written)
        self._write_completions_in(0)  # the rest is written in another turn

    def _completions_written(self, written: "asyncio.Future[ErrorCode]") -> None:
        if not written.result():
            self._pass(AFTER_COMPLETE)

    # -- inside

    def _pass(self, fault_point: str | None) -> None:
        if fault_point is not None:
            self._ports.fault_point(fault_point)
