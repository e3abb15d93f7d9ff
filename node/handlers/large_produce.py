"""A produce of many partitions: it is appended in parts, one after the other, and answered once.

Each part stands in the line of its connection (`produce_line`) as a request of its own would. So
what is wrong with a request as a whole, transactional batches without an id say, concerns its part.
"""

import asyncio
from functools import partial
from typing import Any

from ...replication.sliced_work import SlicedWork
from ...wire.messages.large_produce import decode_parts_steps, encode_parts_steps
from ...wire.messages.produce import ProduceRequest, ProduceResponse
from ...wire.primitives import MalformedFrame
from ..dispatch import Buffer, PendingAnswer


class LargeProduce:
    """One such request."""

    def __init__(self, work: SlicedWork, body: memoryview, version: int) -> None:
        self.version = version
        self.pending = PendingAnswer(self._abandon)
        self._work = work
        self._body = body
        self._answers: list[PendingAnswer] = []
        self._unanswered = 0

    async def parts(self) -> list[tuple[ProduceRequest, PendingAnswer]]:
        """The parts, each with where its answer goes; none of a request that makes no sense."""
        steps = decode_parts_steps(self._body, self.version)
        try:
            requests = await self._work.run("Produce", steps)
        except MalformedFrame as error:
            self.pending.abort(f"API 0: {error}")
            return []
        self._answers = [PendingAnswer() for _ in requests]
        self._unanswered = len(requests)
        for answer in self._answers:
            answer.notify(partial(self._answered, answer))
        return list(zip(requests, self._answers, strict=True))

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
        for answer in self._answers:
            answer.abandon()
