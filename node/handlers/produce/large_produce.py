"""A produce of many partitions: it is appended in parts, one after the other, and answered once.

Each part stands in the line of its connection (`produce_line`) as a request of its own would. What
is wrong with the request as a whole, transactional batches without an id say, is seen before.
"""

import asyncio
from functools import partial
from typing import Any

from ....replication.sliced_work import SlicedWork
from ....wire.errors import InvalidRequiredAcks, KafkaError
from ....wire.messages.large_produce import decode_parts_steps, encode_parts_steps
from ....wire.messages.produce import ProduceRequest, ProduceResponse
from ....wire.primitives import MalformedFrame
from ....wire.steps import made
from ...listener.dispatch import Buffer, PendingAnswer
from .append import refuse_all
from .transactional_producer import Producer, check_one_producer, producer_of


class LargeProduce:
    def __init__(self, work: SlicedWork, body: memoryview, version: int) -> None:
        self.version = version
        self.pending = PendingAnswer(self._abandon)
        self._work = work
        self._body = body
        self._answers: list[PendingAnswer] = []
        self._unanswered = 0
        self._is_abandoned = False

    async def parts(self) -> list[tuple[ProduceRequest, Producer | None, PendingAnswer]]:
        """The parts, each with whose batches it carries, and where its answer goes.

        None of a request that is refused as a whole, or that nobody waits for any more.
        """
        run = partial(self._work.run, "Produce")
        try:
            requests = await run(decode_parts_steps(self._body, self.version))
        except MalformedFrame as error:
            self.pending.abort(f"API 0: {error}")
            return []
        self._answers = [PendingAnswer() for _ in requests]
        self._unanswered = len(requests)
        for answer in self._answers:
            answer.notify(partial(self._answered, answer))
        try:
            producers = await run(made(self._producer_of, requests, at_a_step=1))
            check_one_producer(set(filter(None, producers)))
        except KafkaError as error:
            asked = zip(requests, self._answers, strict=True)
            await run(made(partial(self._refuse, error), asked, at_a_step=1))
            return []
        if self._is_abandoned:
            return []
        return list(zip(requests, producers, self._answers, strict=True))

    def _producer_of(self, request: ProduceRequest) -> Producer | None:
        if request.acks not in (-1, 0, 1):
            raise InvalidRequiredAcks
        return producer_of(request, self.version)

    def _refuse(self, error: KafkaError, asked: tuple[ProduceRequest, PendingAnswer]) -> None:
        request, answer = asked
        outcome = refuse_all(request, self.version, error, answer, self.keep)
        if not isinstance(outcome, PendingAnswer):
            answer.complete(outcome)

    @staticmethod
    def keep(response: ProduceResponse, version: int) -> list[Any]:
        """What a part has instead of its encoded answer."""
        return [response]

    def _answered(self, part: PendingAnswer) -> None:
        self._unanswered -= 1
        if self.pending.is_done:
            return
        if part.close_reason is not None:
            self.pending.abort(part.close_reason)
        elif not self._unanswered:
            responses: list[Any] = [each for part in self._answers for each in part.buffers or ()]
            if not responses:  # acks=0
                self.pending.complete(None)
                return
            steps = encode_parts_steps(responses, self.version)
            self._work.run("Produce", steps).add_done_callback(self._encoded)

    def _encoded(self, encoding: "asyncio.Future[list[Buffer]]") -> None:
        if not encoding.cancelled():
            self.pending.complete(encoding.result())

    def _abandon(self) -> None:
        self._is_abandoned = True
        for answer in self._answers:
            answer.abandon()
