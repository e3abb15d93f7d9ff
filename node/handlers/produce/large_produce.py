"""A Produce request of many partitions, which is appended in parts and answered once.

Each part waits in the queue of its connection like a request. Errors of the whole request, such as
transactional batches without a transactional id, are detected before the first append.
"""

import asyncio
from functools import partial
from typing import Any

from ....runtime.steps import made
from ....wire.errors import InvalidRequiredAcks, KafkaError
from ....wire.framing import Buffer
from ....wire.messages.large_produce import decode_parts_steps, encode_parts_steps, peek_acks
from ....wire.messages.produce import ProduceRequest, ProduceResponse
from ....wire.primitives import MalformedFrame
from ...listener.dispatch import RequestContext
from ...listener.pending_answer import PendingAnswer
from .operation import ProduceOperation
from .permissions import check_transactional
from .verification import TransactionalProducer, check_one_producer, producer_of


class LargeProduce:
    def __init__(
        self, context: RequestContext, body: memoryview, version: int, throttle_ms: int = 0
    ) -> None:
        self.pending = PendingAnswer(self._abandon)
        self.acks = peek_acks(body, version)
        self._context = context
        self._version = version
        self._work = context.broker.work
        self.request_time, self._throttle_ms = context.request_time, throttle_ms
        self._body = body
        self._answers: list[PendingAnswer] = []
        self._unanswered = 0

    async def parts(self) -> list[ProduceOperation]:
        """Return the parts of the request, each with the callback of its answer.

        An abandoned request, or a request that is refused as a whole, has no parts.
        """
        if self.pending.is_abandoned:
            return []
        run = partial(self._work.run, "Produce")
        try:
            requests = await run(decode_parts_steps(self._body, self._version))
        except MalformedFrame as error:
            self.pending.abort(f"API 0: {error}")
            return []
        self._unanswered = len(requests)
        parts = await run(made(self._part, requests, at_a_step=1))
        try:
            producers = await run(made(self._identify, parts, at_a_step=1))
            check_one_producer(set(filter(None, producers)))
        except KafkaError as error:
            await run(made(partial(self._refuse, error), parts, at_a_step=1))
            return []
        if self.pending.is_abandoned:
            # Also abandon the new parts, whose pending answers are parts of a reference cycle.
            self._abandon()
            return []
        return parts

    def _part(self, request: ProduceRequest) -> ProduceOperation:
        answer = PendingAnswer()
        answer.notify(partial(self._answered, answer))
        self._answers.append(answer)
        part = ProduceOperation(self._context, request, self._version)
        part.queue_as_part(answer, self._keep)
        part.request_time = self.request_time
        return part

    @staticmethod
    def _identify(part: ProduceOperation) -> TransactionalProducer | None:
        if part.acks not in (-1, 0, 1):
            raise InvalidRequiredAcks
        part.producer = producer_of(part.appends, part.transactional_id, part.version)
        check_transactional(part.context, part.producer)
        return part.producer

    @staticmethod
    def _refuse(error: KafkaError, part: ProduceOperation) -> None:
        outcome = part.refuse(error)
        if not isinstance(outcome, PendingAnswer):
            assert part.pending is not None
            part.pending.complete(outcome)

    @staticmethod
    def _keep(response: ProduceResponse, version: int) -> list[Any]:
        """Return a part's response object, which is encoded later with those of the other parts."""
        return [response]

    def _answered(self, part: PendingAnswer) -> None:
        self._unanswered -= 1
        if self.pending.is_done:
            return
        if part.close_reason is not None:
            self.pending.abort(part.close_reason)
        elif not self._unanswered:
            responses: list[Any] = [each for part in self._answers for each in part.buffers or ()]
            if not responses:  # true for acks=0
                self.pending.complete(None)
                return
            if self.request_time is not None:
                self._throttle_ms = max(self._throttle_ms, self.request_time.throttle_ms())
            steps = encode_parts_steps(responses, self._version, self._throttle_ms)
            self._work.run("Produce", steps).add_done_callback(self._encoded)

    def _encoded(self, encoding: "asyncio.Future[list[Buffer]]") -> None:
        try:
            body = encoding.result()
        except (Exception, asyncio.CancelledError) as error:
            self.pending.abort(f"a produce cannot be answered: {error!r}")
        else:
            self.pending.complete(body)

    def _abandon(self) -> None:
        self._body = memoryview(b"")
        for answer in self._answers:
            answer.abandon()
