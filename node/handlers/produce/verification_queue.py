"""Produces of one connection that stand in line, because the first must be verified (KIP-890).

Requests of a connection are appended in their order. So when one waits for the transaction
coordinator, or has so many records to be looked at that it is done in slices (`record_checks`), all
behind it wait, too; those of the same producer are asked about together, and a
transaction that opens in many partitions costs two questions, not one for each.

What becomes of an answer of the coordinator:

    NONE        appended with the guard that was given before the question
    any error   the partition's answer, in words that the client's version understands

A marker that came in between has destroyed the guard, and nothing is opened behind the
coordinator's back: it is asked again, with a new guard. That is no rare case. The coordinator holds
a question about the next transaction until the markers of the one before are written, here, too.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from ....storage.partition_log import AppendInfo
from ....storage.producers.entry import NO_OFFSET
from ....storage.producers.state import ProducerStateTable
from ....wire.errors import (
    ErrorCode,
    KafkaError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    UnknownServerError,
    error_for,
)
from ....wire.messages import produce
from ....wire.messages.large_produce import PARTITIONS_MAX
from ....wire.messages.produce import ProduceRequest
from ....wire.record_batch import TRANSACTIONAL_BIT, BatchHeader
from ....wire.steps import made
from ...listener.dispatch import PendingAnswer, RequestContext
from ...partitions.hosted_partition import HostedPartition
from .append import Encode, append_all, refuse_all
from .large_produce import LargeProduce
from .record_checks import NONE_CHECKED, Verdicts, check_in_slices
from .transactional_producer import (
    ADDS_PARTITIONS_FROM,
    Producer,
    noting_owner,
    staleness,
    transactional_header,
)

logger = logging.getLogger(__name__)
QUESTIONS_MAX = 4  # of one request: each time a marker came in between
ABORTABLE_ERROR_FROM = 11  # Produce 11 knows TRANSACTION_ABORTABLE (KIP-1050)
_COORDINATOR_IS_AWAY = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class _Verdict(NamedTuple):
    guard: int
    error: int


_Guards = dict[HostedPartition, int]
_Asked = Mapping[HostedPartition, _Verdict]
_NOBODY: _Asked = MappingProxyType({})


class _Waiting:
    __slots__ = (
        "encode", "is_abandoned", "is_part", "pending",
        "producer", "request", "verdicts", "version",
    )  # fmt: skip

    def __init__(
        self,
        request: ProduceRequest,
        version: int,
        producer: Producer | None,
        verdicts: Verdicts | None,
    ) -> None:
        self.request = request
        self.encode: Encode = produce.encode_response
        self.is_part = False  # of a request of many partitions
        self.verdicts = verdicts  # of its records; None when they are still to be looked at
        self.version = version
        self.producer = producer
        self.is_abandoned = False
        self.pending = PendingAnswer(self._abandon)

    def make_part(self, pending: PendingAnswer, encode: Encode) -> None:
        self.is_part, self.encode = True, encode
        self.pending = pending
        pending.on_abandon = self._abandon

    def _abandon(self) -> None:
        self.is_abandoned = True


class ProduceLine:
    """The line of one connection; it stands in the connection's context while anyone waits."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._waiting: deque[_Waiting | LargeProduce] = deque()
        self._task: asyncio.Task[None] | None = None

    def put(
        self,
        request: ProduceRequest,
        version: int,
        producer: Producer | None,
        verdicts: Verdicts | None,
    ) -> PendingAnswer:
        """Let a request wait for its turn; `producer` is None for one without transactions."""
        return self._append(_Waiting(request, version, producer, verdicts))

    def put_large(self, body: memoryview, version: int) -> PendingAnswer:
        """The same for one of many partitions."""
        return self._append(LargeProduce(self._context.broker.work, body, version))

    def _append(self, waiting: _Waiting | LargeProduce) -> PendingAnswer:
        self._waiting.append(waiting)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        return waiting.pending

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._context.broker.work.share.room()
                first = self._waiting[0]
                if isinstance(first, LargeProduce):
                    await self._take_apart(first)
                    continue
                await self._look_at_records(first)
                count, producer, guards = self._next_question()
                verdicts = {}
                if producer is not None and guards:
                    verdicts = await self._settle(count, producer, guards)
                is_in_parts = False
                for _ in range(count):
                    waiting = self._waiting[0]
                    assert isinstance(waiting, _Waiting)
                    is_in_parts |= waiting.is_part
                    if is_in_parts:  # what stands behind a part is a few turns later, too
                        await self._finish_part(waiting, verdicts)
                    else:
                        self._finish(waiting, verdicts)
                    self._waiting.popleft()
        finally:
            self._context.produce_line = None
            for waiting in self._waiting:  # only if this file is wrong; but none may hang
                if not waiting.pending.is_done:
                    waiting.pending.abort("the line of produces broke")

    async def _take_apart(self, large: LargeProduce) -> None:
        """Its parts take its place, so that all behind it waits for all of them."""
        parts: list[_Waiting] = []
        for request, producer, pending in await large.parts():
            parts.append(_Waiting(request, large.version, producer, None))
            parts[-1].make_part(pending, large.keep)
        self._waiting.popleft()
        self._waiting.extendleft(reversed(parts))

    async def _look_at_records(self, waiting: _Waiting) -> None:
        """Before the question: while we look, a marker may destroy a guard."""
        if waiting.verdicts is None:
            waiting.verdicts = NONE_CHECKED
            if not waiting.is_abandoned:
                waiting.verdicts = await check_in_slices(
                    self._context, waiting.request, lambda: waiting.is_abandoned
                )

    def _next_question(self) -> tuple[int, Producer | None, dict[HostedPartition, int]]:
        """How many can be appended after the next question; of whom; which guards they got.

        No more of them than may be appended in one turn.
        """
        asked_for: Producer | None = None
        guards: dict[HostedPartition, int] = {}
        count = partitions = 0
        for waiting in self._waiting:
            if isinstance(waiting, LargeProduce) or waiting.verdicts is None:
                break
            partitions += sum(len(topic.partitions) for topic in waiting.request.topics)
            if count and partitions > PARTITIONS_MAX:
                break
            producer = waiting.producer
            if producer is not None and not waiting.is_abandoned:
                if asked_for is not None and producer != asked_for:
                    break
                asked_for = producer
                guards |= unverified(self._context, waiting.request, producer)
            count += 1
        return count, asked_for, guards

    async def _settle(
        self, count: int, producer: Producer, guards: _Guards, known: _Asked = _NOBODY
    ) -> dict[HostedPartition, _Verdict]:
        """Ask until every yes comes with a guard that lives, for the first `count` in line.

        Whatever changes while we ask is asked about, too: what has come to be led here, what has
        ended here.
        """
        verdicts = dict(known)
        for _ in range(QUESTIONS_MAX):
            verdicts |= await self._ask(producer, guards)
            await self._context.broker.work.share.room()
            fresh: dict[HostedPartition, int] = {}
            for waiting in islice(self._waiting, count):
                assert isinstance(waiting, _Waiting)
                if waiting.producer is not None and not waiting.is_abandoned:
                    fresh |= unverified(self._context, waiting.request, producer)
            guards = _outdated(fresh, verdicts)
            if not guards:
                return verdicts
        busy = _Verdict(0, ErrorCode.CONCURRENT_TRANSACTIONS)
        return verdicts | dict.fromkeys(guards, busy)

    async def _ask(
        self, producer: Producer, guards: Mapping[HostedPartition, int]
    ) -> dict[HostedPartition, _Verdict]:
        transactional_id, producer_id, epoch, adds = producer
        names = [(partition.topic, partition.index) for partition in guards]
        try:
            errors, ongoing_index = await self._context.broker.verifier.verify(
                transactional_id, producer_id, epoch, names, adds=adds
            )
        except Exception:  # whoever stands in line must be answered
            logger.exception("verifying a transaction of %r", transactional_id)
            errors, ongoing_index = [ErrorCode.UNKNOWN_SERVER_ERROR] * len(names), 0
        for (partition, guard), error in zip(guards.items(), errors, strict=True):
            if not error:
                partition.log.producer_state.verified(producer_id, guard, ongoing_index)
        return {
            partition: _Verdict(guard, error)
            for (partition, guard), error in zip(guards.items(), errors, strict=True)
        }

    async def _finish_part(self, waiting: _Waiting, verdicts: _Asked) -> None:
        """In a slice of its own; if a marker came before that, we ask again."""
        for _ in range(QUESTIONS_MAX):
            trying = made(partial(self._try_to_finish, verdicts), [waiting])
            (guards,) = await self._context.broker.work.run("Produce", trying)
            if waiting.producer is None or not guards:
                return
            verdicts = await self._settle(1, waiting.producer, guards, verdicts)
        self._finish(waiting, verdicts)

    def _try_to_finish(self, verdicts: _Asked, waiting: _Waiting) -> _Guards:
        producer, guards = waiting.producer, _Guards()
        if producer is not None and not waiting.is_abandoned:
            guards = _outdated(unverified(self._context, waiting.request, producer), verdicts)
        if not guards:
            self._finish(waiting, verdicts)
        return guards

    def _finish(self, waiting: _Waiting, verdicts: Mapping[HostedPartition, _Verdict]) -> None:
        if waiting.is_abandoned:
            return  # its client is gone, and says it again elsewhere
        pending, producer = waiting.pending, waiting.producer
        if producer is not None and (stale := staleness(self._context, producer)):
            pending.abort(stale)
            return
        replicas = self._context.broker.replicas

        def verified(
            partition: HostedPartition, records: memoryview, header: BatchHeader, acks: int
        ) -> AppendInfo:
            if not header.attributes & TRANSACTIONAL_BIT:
                return replicas.append(partition, records, header, acks)
            verdict = verdicts.get(partition)
            if verdict is None:
                if _must_be_verified(partition.log.producer_state, header):
                    raise NotLeaderOrFollower(f"{partition} has changed since the question")
                return replicas.append(partition, records, header, acks)
            if verdict.error:
                raise client_error(verdict.error, waiting.version)
            return replicas.append(partition, records, header, acks, guard=verdict.guard)

        append = None if producer is None else noting_owner(verified, producer)
        try:
            outcome = append_all(
                self._context,
                waiting.request,
                waiting.version,
                waiting.verdicts or NONE_CHECKED,
                append,
                pending,
                waiting.encode,
            )
        except Exception:
            logger.exception("a produce that stood in line failed")
            if pending.is_done:
                return
            outcome = refuse_all(
                waiting.request, waiting.version, UnknownServerError(), pending, waiting.encode
            )
        if outcome is not pending:
            assert not isinstance(outcome, PendingAnswer)
            pending.complete(outcome)


def _outdated(guards: _Guards, verdicts: _Asked) -> _Guards:
    """Those that nobody has been asked about, or no longer those of the question."""
    return {
        partition: guard
        for partition, guard in guards.items()
        if partition not in verdicts
        or (not verdicts[partition].error and verdicts[partition].guard != guard)
    }


def unverified(
    context: RequestContext, request: ProduceRequest, producer: Producer
) -> dict[HostedPartition, int]:
    """The partitions in which this request opens a transaction, each with its guard.

    What is wrong with a batch otherwise is left to the append.
    """
    replicas = context.broker.replicas
    now_ms = replicas.clock.wall_ms()
    guards: dict[HostedPartition, int] = {}
    for topic in request.topics:
        for wanted in topic.partitions:
            if topic.topic_id is not None:
                partition = replicas.get_by_id((topic.topic_id, wanted.index))
            else:
                partition = replicas.get(topic.name or "", wanted.index)
            if partition is None or partition.leader is None:
                continue
            header = transactional_header(wanted.records)
            if header is None or header.producer_id < 0:
                continue
            state = partition.log.producer_state
            if not _must_be_verified(state, header):
                continue
            guard = state.begin_verification(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                now_ms=now_ms,
                supports_epoch_bump=producer.adds,
            )
            if guard is not None:
                guards[partition] = guard
    return guards


def client_error(error: int, version: int) -> KafkaError:
    """What a client of this Produce version is told when a verification failed.

    A fenced producer hears of its epoch, as on any produce. Before version 11 nobody knows
    TRANSACTION_ABORTABLE, and before 12 nobody repeats after CONCURRENT_TRANSACTIONS; no version
    repeats after errors of coordinators. NOT_ENOUGH_REPLICAS makes all of them repeat, without
    asking for metadata.
    """
    if error == ErrorCode.PRODUCER_FENCED:
        return error_for(ErrorCode.INVALID_PRODUCER_EPOCH)
    if error == ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_ERROR_FROM:
        error = ErrorCode.INVALID_TXN_STATE
    if error == ErrorCode.INVALID_TXN_STATE:
        return error_for(error, "Partition was not added to the transaction")
    if error in _COORDINATOR_IS_AWAY or (
        error == ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_PARTITIONS_FROM
    ):
        return NotEnoughReplicas(
            "Unable to verify the partition has been added to the transaction. Underlying error: "
            f"{ErrorCode(error).name}"
        )
    return error_for(error)


def _must_be_verified(state: ProducerStateTable, header: BatchHeader) -> bool:
    """Whether its transaction is not known to be open here.

    A fenced producer learns that from the partition, and nobody is asked (KAFKA-19690).
    """
    entry = state.entry(header.producer_id)
    if entry is None:
        return True
    if header.producer_epoch == entry.epoch:
        return entry.transaction_first_offset == NO_OFFSET
    return header.producer_epoch > entry.epoch
