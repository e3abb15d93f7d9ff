"""Executes the transactional calls of a producer: it checks the state, and sends the requests.

Other modules have the rules. `producer_state` has the states in which a call is allowed, `scope`
the parts of a transaction and its end, `reactions` the meaning of errors. This module applies the
rules in order, and waits.

After the deadline of an init, commit or abort only the same call may be repeated, because the
coordinator's decision is unknown.
Sending of offsets continues after its call was cancelled, one call after another. A commit waits
for that sending, and an abort cancels it. A call that is cancelled while it waits for an earlier
call requires an abort.
"""

import logging
from collections.abc import Awaitable, Mapping
from typing import Protocol, TypeVar

from ...wire.errors import InvalidRequest, InvalidTxnState, KafkaError
from ...wire.identifiers import Identity, TopicPartition
from ..failures import IllegalProducerState, TransactionAborted, as_abortable
from ..group_metadata import GroupMetadata, OffsetAndMetadata
from ..long_work import LongWork
from ..retries import now_ms
from ..settings import LONG_MAX, Settings
from .prepared import PreparedTransaction
from .producer_state import Call, ProducerIdentity, ProducerState
from .requests import Session, TransactionRequests
from .scope import Ending, TransactionScope

logger = logging.getLogger(__name__)
T = TypeVar("T")
_S = ProducerState


class Sending(Protocol):
    """The interface of the producer's sender that a session uses."""

    async def flush(self) -> None:
        """Return when every batch was written or has failed."""

    async def abandon(self, problem: KafkaError) -> bool:
        """Fail all batches immediately. Return whether one of them had been sent."""
        ...


class TransactionSession:
    """The transactional side of one producer, with its transactional id."""

    def __init__(
        self, requests: TransactionRequests, identity: ProducerIdentity, settings: Settings
    ) -> None:
        self.requests, self.identity, self._settings = requests, identity, settings
        self.scope: TransactionScope | None = None
        self.kept: PreparedTransaction | None = None  # taken over from an earlier session
        self.timeout_ms: int = settings.max_block_ms
        # V1: a request may still take effect under this epoch, so the next transaction gets
        # another.
        self._needs_new_epoch = False
        self._offsets = LongWork()

    @property
    def _producer(self) -> Identity:
        return self.identity.producer_id, self.identity.producer_epoch

    def _deadline_ms(self) -> int:
        return now_ms() + self.timeout_ms

    @property
    def should_abort(self) -> bool:
        """Whether this producer has an open transaction that it must abort before it ends."""
        state = self.identity.state
        if state is _S.IN_TRANSACTION:
            return self.scope is not None and not self.scope.prepared
        return state in (_S.ABORTABLE_ERROR, _S.ABORTING_TRANSACTION)

    async def init(self, *, keep_prepared: bool) -> PreparedTransaction | None:
        """Call InitProducerId.

        Return the token of a prepared transaction that was kept, or None.
        """
        self.identity.require(Call.INIT)
        self.identity.move_to(_S.INITIALIZING)
        session = await self._new_epoch(otherwise=_S.UNINITIALIZED, keeps_prepared=keep_prepared)
        if session.ongoing[0] < 0:
            return None
        # This producer ends it, under the new id and epoch; the old token alone is fenced.
        self.scope = TransactionScope(is_v2=self.requests.is_v2)
        self.scope.has_begun = self.scope.prepared = True
        self.identity.move_to(_S.IN_TRANSACTION)
        self.kept = PreparedTransaction(
            self.requests.transactional_id, *session.ongoing, self.requests.is_v2
        )
        return self.kept

    async def begin(self) -> None:
        """Begin a transaction, with a raised epoch after an uncertain transaction under V1."""
        self.identity.require(Call.BEGIN)
        if self._needs_new_epoch:
            self.identity.move_to(_S.INITIALIZING)
            await self._new_epoch(otherwise=_S.READY, current=self._producer)
        self.identity.move_to(_S.IN_TRANSACTION)
        self.scope = TransactionScope(is_v2=self.requests.is_v2)

    def require_same(self, scope: object) -> None:
        """Raise IllegalProducerState if `scope` is no longer the open transaction.

        A record of that transaction has then waited for too long, and is not sent.
        """
        if self.scope is not scope:
            raise IllegalProducerState(
                "the transaction ended while this waited to be sent: it is not in the next one"
            )

    def want(self, topic: str, partition: int) -> None:
        """Note that a record for a partition is coming, which must belong to the transaction.

        Raises if no transaction is open.
        """
        self._open_scope(Call.SEND).want((topic, partition))

    def _open_scope(self, call: Call) -> TransactionScope:
        self.identity.require(call)
        assert self.scope is not None
        if self.scope.prepared:
            raise IllegalProducerState("the transaction is prepared: it takes nothing more")
        return self.scope

    async def add_wanted(self) -> None:
        """Send AddPartitionsToTxn for the partitions that were passed to `want` (V1).

        A failure changes the state of the producer.
        """
        scope = self.scope
        if scope is None or not scope.has_unadded:
            return  # the transaction was over before this began
        partitions = scope.take_unadded()
        try:
            await self._tracked(
                self.requests.add_partitions(self._producer, partitions, self._deadline_ms())
            )
        except KafkaError as problem:
            scope.is_uncertain = True
            self.failed(problem)
        else:
            scope.added()

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Add offsets to the transaction, which are committed when the transaction commits."""
        self._open_scope(Call.SEND_OFFSETS)
        if not group.group_id:
            raise InvalidRequest("offsets in a transaction need a group id")
        if not offsets:
            return
        try:
            while self._offsets.is_running:
                await self._offsets.ended()
        except BaseException:
            self.failed(KafkaError("a call to send offsets was interrupted while it waited"))
            raise
        scope = self._open_scope(Call.SEND_OFFSETS)  # again, after the earlier calls
        scope.sent()
        is_sent = False

        async def add() -> None:
            nonlocal is_sent
            await self._add_offsets(scope, offsets, group)
            is_sent = True

        await self._offsets.until(LONG_MAX, add)
        if not is_sent:
            raise TransactionAborted("the transaction was aborted while its offsets were sent")

    async def _add_offsets(
        self,
        scope: TransactionScope,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
    ) -> None:
        deadline_ms = self._deadline_ms()
        try:
            if not scope.is_v2 and group.group_id not in scope.groups:
                await self._tracked(
                    self.requests.add_offsets(self._producer, group.group_id, deadline_ms)
                )
                scope.groups.add(group.group_id)
            await self._tracked(
                self.requests.commit_offsets(
                    self._producer, group, offsets, deadline_ms, is_v2=scope.is_v2
                )
            )
        except BaseException as problem:  # or cancelled: the request may still take effect
            scope.is_uncertain = True
            self.failed(problem if isinstance(problem, KafkaError) else KafkaError(repr(problem)))
            raise

    async def prepare(self, sending: Sending, *, may_time_out: bool = False) -> PreparedTransaction:
        """Flush, and return the transaction's token. The transaction accepts no more records."""
        self.identity.require(Call.PREPARE)
        if not (may_time_out or self._settings.transaction_two_phase_commit_enable):
            raise IllegalProducerState(
                "prepare() needs transaction.two.phase.commit.enable=true: "
                "the cluster would abort the transaction after its timeout"
            )
        scope = self.scope
        assert scope is not None
        was_prepared, scope.prepared = scope.prepared, True
        try:
            await sending.flush()
            await self._offsets.ended()
            self.identity.require(Call.PREPARE)
        except BaseException:
            scope.prepared = was_prepared  # this call has returned no token
            raise
        return PreparedTransaction(
            self.requests.transactional_id,
            *self._producer,
            scope.is_v2,
            is_empty=not scope.has_begun,
        )

    async def commit(self, sending: Sending) -> None:
        """Flush and commit the transaction, or raise the reason if the commit fails.

        A deadline leaves the state COMMITTING_TRANSACTION.
        """
        self.identity.require(Call.COMMIT)
        scope = self.scope
        assert scope is not None
        if self.identity.state is _S.IN_TRANSACTION:
            self.identity.move_to(_S.COMMITTING_TRANSACTION)
        await sending.flush()
        await self._offsets.ended()
        self.identity.require(Call.COMMIT)  # perhaps a batch or offsets have failed meanwhile
        if scope.ending(is_commit=True) is Ending.END_TRANSACTION:
            await self._end(scope, is_commit=True)
        self._over()

    async def abort(self, sending: Sending) -> None:
        """Abort the transaction, or raise the reason if the abort fails.

        After a deadline the abort may be repeated.
        """
        self.identity.require(Call.ABORT)
        scope = self.scope
        if self.identity.state is not _S.ABORTING_TRANSACTION:
            self.identity.move_to(_S.ABORTING_TRANSACTION)
        await self.close()
        were_on_their_way = await sending.abandon(
            TransactionAborted("the transaction was aborted before the record was acknowledged")
        )
        if scope is None:
            self._over()
            return
        scope.is_uncertain |= were_on_their_way
        ending = scope.ending(is_commit=False, can_raise_epoch=self.requests.can_raise_epoch)
        if ending is not Ending.NOTHING:
            try:
                await self._end(scope, is_commit=False, may_be_unknown=ending is Ending.NEW_EPOCH)
            except KafkaError as problem:
                if not problem.abortable:
                    raise
                ending = Ending.NEW_EPOCH  # the coordinator requires that
            else:
                # A repeated abort sends no EndTxn, since the epoch may have been raised meanwhile.
                self.scope = None if ending is Ending.NEW_EPOCH else scope
        if ending is Ending.NEW_EPOCH:
            self._needs_new_epoch = True
            self.identity.move_to(_S.INITIALIZING)
            await self._new_epoch(otherwise=_S.ABORTABLE_ERROR, current=self._producer)
            self.scope = self.kept = None
            return
        self._over()

    async def close(self) -> None:
        """Cancel the sending of offsets that interrupted calls have left running."""
        await self._offsets.stop()

    def uncertain(self) -> None:
        """Note that an answer was lost, so that its request may still take effect."""
        if self.scope is not None:
            self.scope.is_uncertain = True

    def failed(self, problem: KafkaError) -> None:
        """Change the state to ABORTABLE_ERROR, or to FATAL_ERROR if the error is fatal."""
        state = self.identity.state
        if problem.fatal:
            if state is not _S.FATAL_ERROR:
                logger.error(
                    "%s: the producer was fenced or has failed, and cannot be used any more: %s",
                    self._settings.transactional_id,
                    problem,
                )
                self.identity.move_to(_S.FATAL_ERROR, problem)
        elif state in (_S.IN_TRANSACTION, _S.COMMITTING_TRANSACTION):
            logger.warning(
                "%s: the transaction must be aborted: %s", self._settings.transactional_id, problem
            )
            self.identity.move_to(_S.ABORTABLE_ERROR, as_abortable(problem))

    async def _end(
        self, scope: TransactionScope, *, is_commit: bool, may_be_unknown: bool = False
    ) -> None:
        """Send EndTxn.

        may_be_unknown: no request may have begun the transaction. Then INVALID_TXN_STATE is no
        error.
        """
        try:
            following = await self._tracked(
                self.requests.end(
                    self._producer, self._deadline_ms(), is_commit=is_commit, is_v2=scope.is_v2
                )
            )
        except KafkaError as problem:
            scope.is_uncertain = True
            if may_be_unknown and isinstance(problem, InvalidTxnState):
                return
            if problem.fatal or problem.abortable:  # a deadline decides nothing
                self.failed(problem)
            raise
        except BaseException:
            scope.is_uncertain = True
            raise
        self.identity.renew(*following)

    async def _tracked(self, request: Awaitable[T]) -> T:
        """Await a request and return its result. A lost answer makes the transaction uncertain."""
        before = self.requests.lost_answers
        try:
            return await request
        finally:
            if self.requests.lost_answers != before:
                self.uncertain()

    async def _new_epoch(
        self,
        *,
        otherwise: ProducerState,
        current: Identity = (-1, -1),
        keeps_prepared: bool = False,
    ) -> Session:
        """Call InitProducerId. The state becomes READY, or `otherwise` after an error.

        After a fatal error it becomes FATAL_ERROR.
        current: the id to keep.
        """
        try:
            session = await self.requests.init_producer_id(
                self._deadline_ms(),
                transaction_timeout_ms=self._settings.transaction_timeout_ms,
                current=current,
                enables_prepare=self._settings.transaction_two_phase_commit_enable,
                keeps_prepared=keeps_prepared,
            )
        except BaseException as caught:
            problem = caught if isinstance(caught, KafkaError) else None
            if problem is not None and problem.fatal:
                self.identity.move_to(_S.FATAL_ERROR, problem)
            elif problem is None or otherwise is _S.UNINITIALIZED:
                self.identity.move_to(otherwise)
            else:
                self.identity.move_to(otherwise, as_abortable(problem))
            raise
        self.identity.initialized(session.producer_id, session.producer_epoch)
        self._needs_new_epoch = False
        return session

    def _over(self) -> None:
        if self.scope is not None and not self.scope.is_v2:
            self._needs_new_epoch |= self.scope.is_uncertain
        self.identity.move_to(_S.READY)
        self.scope = self.kept = None
