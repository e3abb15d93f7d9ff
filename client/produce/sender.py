"""The sending loop of a producer.

This file follows some rules. A request has at most one batch of a partition. A partition has at
most five batches in flight, and only one while a batch is retried (`accumulator`). In a transaction
a batch is sent only to a partition that was added to the transaction. When the transaction is
aborted, its batches are abandoned, and their answers are ignored.

A batch that fails permanently leaves a gap in the sequence numbers, so the batches after the gap
are refused. A producer without transactions then waits until no batch is in flight, takes a new
producer id, and sends the refused batches under new numbers (KIP-360). A batch that a broker may
have written keeps its numbers for ever.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from ...wire.errors import ErrorCode, KafkaError, error_for
from ...wire.identifiers import TopicPartition
from ...wire.messages.produce import ProducedPartition
from ...wire.record_batch import rewrite_producer
from ..cluster_view import ClusterView
from ..failures import UNREACHABLE, ClientClosed, as_abortable, as_fatal
from ..retries import now_ms
from ..settings import LONG_MAX, Settings
from ..transactions.producer_state import ProducerIdentity, ProducerState
from ..transactions.reactions import Fate, fate_after
from ..transactions.session import TransactionSession
from .accumulator import Accumulator, ProducerBatch
from .delivery import NO_OFFSET, NO_TIMESTAMP, RecordMetadata, UnseenFailures
from .requests import COMPRESSION, fresh_producer_id, halves, problem_of, produce_batches

logger = logging.getLogger(__name__)
IDLE_MS = 500
HELD_MS = 20  # until the next request for a producer id
# A leader that was deposed or lost its disk while it waited for replicas answers these, too.
MAY_BE_WRITTEN = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
PRODUCER_ID_TIMEOUT_MS = 1_000
TAKES_PARTITIONS = (ProducerState.IN_TRANSACTION, ProducerState.COMMITTING_TRANSACTION)


class Sender:
    """The loop that sends the batches of the accumulator.

    `session` is the producer's transaction session, or None without a transactional.id.
    """

    def __init__(
        self,
        view: ClusterView,
        settings: Settings,
        identity: ProducerIdentity,
        batches: Accumulator,
        session: TransactionSession | None,
    ) -> None:
        self._view, self._settings, self._identity = view, settings, identity
        self._batches, self._session = batches, session
        self._compression = COMPRESSION[settings.compression_type]
        self.wake, self.decided = asyncio.Event(), asyncio.Event()
        self.unseen = UnseenFailures()
        self._flushes = 0  # running calls of `flush`
        self._is_closing = False
        # The first batch after a gap in the numbers.
        self._refused: dict[TopicPartition, ProducerBatch] = {}
        self._loop: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[None]] = set()
        self._broken: BaseException | None = None  # an unexpected error of a request
        self._looked_ms = now_ms()
        self._adding: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the loop unless it runs, or raise the error that ended the loop."""
        if self._loop is None:
            self._loop = asyncio.create_task(self._run())
        elif self._loop.done() and self._identity.problem is not None:
            raise self._identity.problem

    async def flush(self) -> None:
        """Return when the outcome of every sent record is known."""
        self._flushes += 1
        try:
            while self._batches and self._loop is not None and not self._loop.done():
                await self.until_decided()
        finally:
            self._flushes -= 1

    async def until_decided(self) -> None:
        """Return when at least one batch was written or has failed, or the loop has ended."""
        assert self._loop is not None
        self.decided.clear()
        self.wake.set()
        waiter = asyncio.ensure_future(self.decided.wait())
        try:
            await asyncio.wait([waiter, self._loop], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()

    async def abandon(self, problem: KafkaError) -> bool:
        """Fail all batches immediately. Return whether one of them had been sent."""
        were_on_their_way = self._batches.has_in_flight
        for batch in self._batches.take_all():
            were_on_their_way |= batch.attempts > 1
            batch.outcome.failed(problem)
        if self._adding is not None:
            self._adding.cancel()
            await asyncio.gather(self._adding, return_exceptions=True)
            self._adding = None
        self.decided.set()
        return were_on_their_way

    async def close(self) -> None:
        """End the loop, and fail undecided batches."""
        self._is_closing = True
        self.wake.set()
        if self._loop is not None:
            # its calls have raised the error
            await asyncio.gather(self._loop, return_exceptions=True)
        await self.abandon(ClientClosed("the producer was closed"))
        for request in list(self._requests):
            request.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)

    # --- the loop

    async def _run(self) -> None:
        try:
            while not self._is_closing:
                if self._broken is not None:
                    raise self._broken
                self._expire()
                if await self._has_identity():
                    self._add_partitions()
                    if self._send():
                        await asyncio.sleep(0)
                        continue
                await self._wait()
        except BaseException as problem:
            # `flush` sees no batches any more: only the state keeps a transaction from being
            # committed without those that fail here.
            known = as_fatal(problem if isinstance(problem, KafkaError) else _broke(problem))
            self._identity_is_lost(known)
            for batch in self._batches.take_all():
                self.unseen.fail(batch.outcome, known)
            self.decided.set()
            raise

    def _expire(self) -> None:
        late = self._batches.expire(now_ms())
        if late:
            self._fail(late, self._batches.too_late(late))

    async def _wait(self) -> None:
        now = now_ms()
        wait_ms = self._batches.next_ready_ms(
            now, is_flushing=self._flushes > 0, may_leave=self._may_leave()
        )
        wait_ms = IDLE_MS if wait_ms is None else wait_ms or HELD_MS
        self.wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(wait_ms, IDLE_MS) / 1000):
                await self.wake.wait()
        if now - self._looked_ms > self._settings.metadata_max_age_ms:
            self._looked_ms = now
            topics = {topic for topic, _ in self._view.snapshot.partitions}
            self._keep(asyncio.create_task(self._refresh(topics)))

    def _may_leave(self) -> Callable[[TopicPartition], bool] | None:
        if self._session is None:
            return None
        scope = self._session.scope
        return scope.may_leave if scope is not None else lambda _: False

    def _add_partitions(self) -> None:
        scope = self._session.scope if self._session is not None else None
        if scope is None or self._identity.state not in TAKES_PARTITIONS:
            return  # an aborting transaction must not be begun again after its end
        if scope.has_unadded:
            assert self._session is not None
            self._adding = asyncio.create_task(self._session.add_wanted())
            self._adding.add_done_callback(self._added)

    def _added(self, task: "asyncio.Task[None]") -> None:
        self._note_broken(task)
        self._fail_doomed()
        self.wake.set()

    def _send(self) -> bool:
        batches = self._batches.take(
            now_ms(), is_flushing=self._flushes > 0, may_leave=self._may_leave()
        )
        if not batches:
            return False
        scope = self._session.scope if self._session is not None else None
        if scope is not None:
            scope.sent()
        is_v2 = scope is not None and scope.is_v2
        for leader, group in self._requests_of(batches):
            self._keep(asyncio.create_task(self._request(leader, group, is_v2)))
        return True

    def _requests_of(self, batches: list[ProducerBatch]) -> list[tuple[int, list[ProducerBatch]]]:
        """Return (leader, batches) of each request. The leader is -1 if unknown.

        A request has at most max.request.size bytes, or a single larger batch.
        """
        requests: list[tuple[int, list[ProducerBatch]]] = []
        last: dict[int, tuple[list[ProducerBatch], int]] = {}
        group: list[ProducerBatch]
        for batch in batches:
            self._encode(batch)
            assert batch.encoded is not None
            known = self._view.snapshot.partitions.get((batch.topic, batch.partition))
            leader = known.leader if known else -1
            group, size_bytes = last.get(leader, ([], LONG_MAX))
            size_bytes += len(batch.encoded)
            if size_bytes > self._settings.max_request_size:
                group, size_bytes = [], len(batch.encoded)
                requests.append((leader, group))
            group.append(batch)
            last[leader] = group, size_bytes
        return requests

    def _keep(self, task: "asyncio.Task[None]") -> None:
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        task.add_done_callback(self._note_broken)

    def _note_broken(self, task: "asyncio.Task[None]") -> None:
        """End the loop if a task has raised an unexpected error, because its batches stay
        undecided.
        """
        if not task.cancelled() and (problem := task.exception()) is not None:
            self._broken = problem
            self.wake.set()

    def _encode(self, batch: ProducerBatch) -> None:
        is_numbered = self._settings.enable_idempotence
        if batch.encoded is not None and (batch.base_sequence >= 0 or not is_numbered):
            return
        identity = self._identity
        if is_numbered and batch.base_sequence < 0:
            batch.producer_id = identity.producer_id
            count = batch.builder.count
            batch.base_sequence = identity.take_sequences(batch.topic, batch.partition, count)
        epoch = identity.producer_epoch if is_numbered else -1
        if batch.encoded is not None:  # a copy: the old bytes may still be under way
            batch.encoded = bytearray(batch.encoded)
            rewrite_producer(batch.encoded, batch.producer_id, epoch, batch.base_sequence)
            return
        batch.encoded = batch.builder.build(
            compression=self._compression,
            producer_id=batch.producer_id,
            producer_epoch=epoch,
            base_sequence=batch.base_sequence,
            is_transactional=self._session is not None,
        )
        batch.builder.release()

    # --- one request

    async def _request(self, leader: int, batches: list[ProducerBatch], is_v2: bool) -> None:
        """Send one request and decide its batches."""
        try:
            answers = await produce_batches(
                self._view, leader, batches, self._settings, is_v2=is_v2
            )
        except KafkaError as problem:
            for b in batches:
                is_lost = isinstance(problem, UNREACHABLE)
                self._decide(b, int(problem.code), None, problem, is_lost=is_lost)
        else:
            for b in batches:
                answer = answers.get((b.topic, b.partition))
                code = -1 if answer is None else answer.error_code
                problem = problem_of(b, code, answer, self._settings) if code else None
                self._decide(b, code, answer, problem)
        retried = {b.topic for b in batches if b.not_before_ms and not b.is_given_up}
        if retried:
            await self._refresh(retried)
        self.wake.set()

    def _decide(
        self,
        batch: ProducerBatch,
        code: int,
        answer: ProducedPartition | None,
        problem: KafkaError | None,
        *,
        is_lost: bool = False,
    ) -> None:
        if batch.is_given_up:
            self._batches.finish(batch)
            return
        if is_lost and self._session is not None:
            self._session.uncertain()
        is_doubtful = batch.is_doubtful
        batch.is_doubtful |= is_lost or code in MAY_BE_WRITTEN
        fate = fate_after(
            code,
            is_retriable=problem is not None and problem.retriable,
            is_oldest_in_flight=self._batches.is_oldest_in_flight(batch),
            is_transactional=self._session is not None,
            is_doubtful=is_doubtful,
            record_count=batch.builder.count,
        )
        if fate is Fate.DONE:
            self._batches.finish(batch, is_written=True)
            offset, timestamp = NO_OFFSET, NO_TIMESTAMP
            if answer is not None:
                offset, timestamp = answer.base_offset, answer.log_append_time_ms
            batch.outcome.written(RecordMetadata(batch.topic, batch.partition, offset, timestamp))
            self.decided.set()
            return
        assert problem is not None
        if fate is Fate.NEW_ID and self._session is None and self._settings.enable_idempotence:
            self._refused.setdefault((batch.topic, batch.partition), batch)
            fate = Fate.RETRY
        if fate is Fate.RETRY and batch.attempts <= self._settings.retries:
            first, last = self._settings.retry_backoff_ms, self._settings.retry_backoff_max_ms
            batch.problem = problem
            self._batches.retry(batch, now_ms(), min(first << min(batch.attempts - 1, 6), last))
            logger.info(
                "%r is sent again after attempt %d failed: %s", batch, batch.attempts, problem
            )
            return
        if fate is Fate.SPLIT:
            self._batches.replace(batch, halves(batch), now_ms())
            return
        self._batches.finish(batch)
        if fate is Fate.FATAL:
            self._identity_is_lost(as_fatal(problem))
        self._fail([batch], problem)

    def _fail(self, batches: list[ProducerBatch], problem: KafkaError) -> None:
        if self._session is not None and not problem.fatal:
            as_abortable(problem)
        for batch in batches:
            logger.warning("%r failed after %d attempts: %s", batch, batch.attempts, problem)
            self.unseen.fail(batch.outcome, problem)
            if batch.attempts and self._session is not None:
                self._session.uncertain()
            elif batch.base_sequence >= 0 and not self._batches.is_known(batch):
                # a leader that does not know the id could not refuse batches after the gap
                self._refused.setdefault((batch.topic, batch.partition), batch)
        if self._session is not None:
            self._session.failed(problem)
            self._fail_doomed()
        self.decided.set()

    def _fail_doomed(self) -> None:
        """Fail the waiting batches if their transaction can no longer be committed."""
        problem = self._identity.problem
        if self._session is None or not isinstance(problem, KafkaError):
            return
        for batch in self._batches.give_up_waiting():
            if batch.attempts:
                self._session.uncertain()
            batch.outcome.failed(problem)
        self.decided.set()

    def _identity_is_lost(self, problem: KafkaError) -> None:
        if self._identity.state is not ProducerState.FATAL_ERROR:
            logger.error("the producer has failed and cannot be used any more: %s", problem)
            self._identity.move_to(ProducerState.FATAL_ERROR, problem)

    async def _refresh(self, topics: set[str]) -> None:
        with contextlib.suppress(KafkaError):  # the next attempt refreshes again
            await self._view.refresh(topics)

    # --- the id of a producer without transactions

    async def _has_identity(self) -> bool:
        """Return whether batches may be sent, because a producer id is known or not needed."""
        if self._session is not None or not self._settings.enable_idempotence:
            return True
        identity = self._identity
        if identity.state is ProducerState.FATAL_ERROR:
            raise identity.problem or error_for(ErrorCode.PRODUCER_FENCED)
        if self._refused:
            if self._batches.has_in_flight:
                return False
            for where, first in self._refused.items():
                self._batches.renumber(where, first)
            self._refused.clear()
            logger.info(
                "the producer requests a new producer id after a gap in its sequence "
                "numbers (KIP-360)"
            )
            identity.move_to(ProducerState.UNINITIALIZED)
        if identity.state is ProducerState.READY or not self._batches:
            return True
        identity.move_to(ProducerState.INITIALIZING)
        try:
            given = await fresh_producer_id(self._view, timeout_ms=PRODUCER_ID_TIMEOUT_MS)
        except KafkaError as problem:
            if problem.retriable:  # again, until the batches expire
                identity.move_to(ProducerState.UNINITIALIZED)
                return False
            self._identity_is_lost(as_fatal(problem))
            raise
        identity.initialized(*given)
        self._batches.producer_id = identity.producer_id
        return True


def _broke(problem: BaseException) -> KafkaError:
    return KafkaError(f"the producer broke and must be closed: {problem!r}")
