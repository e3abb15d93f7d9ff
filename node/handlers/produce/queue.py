"""The queue of one connection's produce requests that wait for a verification or record checks.

Requests of a connection are appended in their order. If one waits for the opening of a log
(`awaited_leaders`), for the transaction coordinator (KIP-890), or for checks of many records
(`record_checks`), all later requests wait, too. Requests of the same producer are verified
together, so that a transaction which opens in many partitions needs only two verifications.

If the coordinator confirms a partition, its batch is appended with the guard that was created
before the verification. An error of the coordinator becomes the partition's answer, as an error
that the client's version knows.

A marker that is written during the verification invalidates the guard, so that no ended transaction
is opened again. The transaction is then verified again with a new guard. This happens regularly at
the start of a transaction. The coordinator's answer waits for the markers of the producer's
previous transaction, one of which may be for this partition.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Mapping
from functools import partial
from itertools import islice
from typing import Any

from ....runtime.steps import Result, made
from ....wire.errors import ErrorCode
from ....wire.messages.large_produce import PARTITIONS_MAX
from ...listener.dispatch import RequestContext
from ...listener.pending_answer import PendingAnswer
from ...partitions.hosted_partition import HostedPartition
from .large_produce import LargeProduce
from .operation import ProduceOperation
from .record_checks import check_in_slices
from .verification import TransactionalProducer, Verification, staleness

logger = logging.getLogger(__name__)
# The limit of verifications of one request, each repeated because a marker was written.
QUESTIONS_MAX = 4
_Guards = dict[HostedPartition, int]
_Verifications = Mapping[HostedPartition, Verification]


class ProduceQueue:
    """The queued produce requests of one connection.

    The context of the connection refers to the queue until the queue is empty.
    """

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._waiting: deque[ProduceOperation | LargeProduce] = deque()
        self._task: asyncio.Task[None] | None = None
        context.produce_queue = self

    def put(self, operation: ProduceOperation) -> PendingAnswer:
        """Queue a request, and return its pending answer."""
        pending = operation.queue()
        self._put(operation)
        return pending

    def put_large(self, body: memoryview, version: int, throttle_ms: int) -> PendingAnswer:
        """Queue a request of many partitions, and return its pending answer."""
        large = LargeProduce(self._context, body, version, throttle_ms)
        self._put(large)
        return large.pending

    def _put(self, waiting: ProduceOperation | LargeProduce) -> None:
        self._waiting.append(waiting)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._context.broker.work.share.room()
                first = self._waiting[0]
                if isinstance(first, LargeProduce):  # its parts replace it in the queue
                    parts = await self._parts(first)
                    self._waiting.popleft()
                    self._waiting.extendleft(reversed(parts))
                    continue
                if first.is_unled:
                    await first.until_led()
                    await self._context.broker.work.share.room()
                await _measured(first, self._check_records(first))
                count, producer, guards = self._next_question()
                verifications: _Verifications = {}
                if producer is not None and guards:
                    verifications = await self._verify(count, producer, guards)
                is_in_parts = False
                for _ in range(count):
                    operation = self._waiting[0]
                    assert isinstance(operation, ProduceOperation)
                    is_in_parts |= operation.is_part
                    if is_in_parts:  # requests after a part are also appended in later turns
                        await _measured(operation, self._append_part(operation, verifications))
                    elif operation.request_time is None:
                        self._append(operation, verifications)
                    else:
                        operation.request_time.call(self._append, operation, verifications)
                    self._waiting.popleft()
        finally:
            self._context.produce_queue = None
            # Only after a bug in this file; every request must be answered.
            for waiting in self._waiting:
                if waiting.pending is not None and not waiting.pending.is_done:
                    waiting.pending.abort("the queue of produces broke")

    async def _parts(self, large: LargeProduce) -> list[ProduceOperation]:
        try:
            return await _measured(large, large.parts())
        except Exception as error:
            logger.exception("a Produce request for many partitions failed")
            large.pending.abort(f"a produce failed: {error!r}")
            return []

    async def _check_records(self, operation: ProduceOperation) -> None:
        """Check the records of a request in slices, before its verification.

        If they were checked afterwards, a marker would more often invalidate the verification's
        guard.
        """
        if not operation.records_checked:
            operation.records_checked = True
            operation.look_up()
            if not operation.is_abandoned:
                appends, is_abandoned = operation.appends, lambda: operation.is_abandoned
                try:
                    await check_in_slices(self._context, appends, is_abandoned)
                except Exception as error:
                    assert operation.pending is not None
                    operation.pending.fail(error, operation.refuse)

    def _next_question(self) -> tuple[int, TransactionalProducer | None, _Guards]:
        """Return how many requests are appended next, and the producer and guards to verify first.

        Plain requests among them are not verified. The requests must fit into one turn of the event
        loop when they are appended.
        """
        asked_for: TransactionalProducer | None = None
        guards: _Guards = {}
        count = partitions = 0
        for operation in self._waiting:
            if isinstance(operation, LargeProduce) or not operation.records_checked:
                break
            partitions += len(operation.appends)
            if count and partitions > PARTITIONS_MAX:
                break
            producer = operation.producer
            if producer is not None and not operation.is_abandoned:
                if asked_for is not None and producer != asked_for:
                    break
                asked_for = producer
                guards |= operation.unverified()
            count += 1
        return count, asked_for, guards

    async def _verify(
        self,
        count: int,
        producer: TransactionalProducer,
        guards: _Guards,
        known: _Verifications | None = None,
    ) -> _Verifications:
        """Verify the first `count` requests until all their guards are valid.

        New leaderships and ended transactions during a verification lead to another verification.
        After QUESTIONS_MAX verifications the other partitions get CONCURRENT_TRANSACTIONS.
        """
        verifications = dict(known or {})
        for _ in range(QUESTIONS_MAX):
            verifications |= await self._ask(producer, guards)
            await self._context.broker.work.share.room()
            fresh: _Guards = {}
            for operation in islice(self._waiting, count):
                assert isinstance(operation, ProduceOperation)
                fresh |= operation.unverified()
            guards = _outdated(fresh, verifications)
            if not guards:
                return verifications
        busy = Verification(0, ErrorCode.CONCURRENT_TRANSACTIONS)
        return verifications | dict.fromkeys(guards, busy)

    async def _ask(self, producer: TransactionalProducer, guards: _Guards) -> _Verifications:
        transactional_id, producer_id, epoch, adds = producer
        names = [(partition.topic, partition.index) for partition in guards]
        try:
            errors, ongoing_index = await self._context.broker.verifier.verify(
                transactional_id, producer_id, epoch, names, adds=adds
            )
        except Exception:  # the requests in the queue must still be answered
            logger.exception(
                "the verification of a transaction of transactional id %r failed", transactional_id
            )
            errors, ongoing_index = [ErrorCode.UNKNOWN_SERVER_ERROR] * len(names), 0
        verifications: dict[HostedPartition, Verification] = {}
        for (partition, guard), error in zip(guards.items(), errors, strict=True):
            verifications[partition] = Verification(guard, error)
            if not error:
                partition.log.producer_state.verified(producer_id, guard, ongoing_index)
        return verifications

    async def _append_part(
        self, operation: ProduceOperation, verifications: _Verifications
    ) -> None:
        """Append a part of a large request, or a request behind it, as a job on the event loop.

        If a marker was written since the verification, the operation is verified again.
        """
        for _ in range(QUESTIONS_MAX):
            trying = made(partial(self._try_to_append, verifications), [operation])
            try:
                (guards,) = await self._context.broker.work.run("Produce", trying)
            except Exception as error:
                assert operation.pending is not None
                operation.pending.fail(error, operation.refuse)
                return
            if operation.producer is None or not guards:
                return
            verifications = await self._verify(1, operation.producer, guards, verifications)
        self._append(operation, verifications)

    def _try_to_append(self, verifications: _Verifications, operation: ProduceOperation) -> _Guards:
        guards = _outdated(operation.unverified(), verifications)
        if not guards:
            self._append(operation, verifications)
        return guards

    def _append(self, operation: ProduceOperation, verifications: _Verifications) -> None:
        pending, producer = operation.pending, operation.producer
        assert pending is not None
        if pending.is_done:
            return  # the request has failed, or its client has disconnected and retries elsewhere
        if producer is not None and (stale := staleness(self._context, producer)):
            pending.abort(stale)
            return
        try:
            outcome = operation.append(verifications)
        except Exception as error:
            pending.fail(error, operation.refuse)
            return
        if outcome is not pending:
            assert not isinstance(outcome, PendingAnswer)
            pending.complete(outcome)


def _outdated(guards: _Guards, verifications: _Verifications) -> _Guards:
    """Return the guards that were not verified, or that have changed since their verification."""
    return {
        partition: guard
        for partition, guard in guards.items()
        if partition not in verifications
        or (not verifications[partition].error and verifications[partition].guard != guard)
    }


async def _measured(
    request: ProduceOperation | LargeProduce, work: Coroutine[Any, Any, Result]
) -> Result:
    """Await the work, and add its time on the event loop to its request's time for request quotas.

    Without request quotas nothing is measured.
    """
    if request.request_time is None:
        return await work
    return await request.request_time.drive(work)
