"""The barrier that waits until all live brokers have applied a change of the metadata."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...replication.messages import PeerMessage
from ...replication.peer.codec import decode_message, encode_message
from ...replication.peer.transport import PeerError, PeerTransport
from ...runtime.background_task import TaskSet
from ...wire.errors import RequestTimedOut
from .client import ControllerClient

ATTEMPT_MS = 1_000
PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class UntilApplied:
    """A request that a broker answers once it has applied the metadata log up to this index."""

    index: int


class MetadataBarrier:
    """The barrier with which one broker waits until all live brokers have applied a change.

    The barrier does not wait for brokers that are fenced during the wait.
    """

    def __init__(self, controller: ControllerClient, links: PeerTransport) -> None:
        self._controller, self._links = controller, links
        log = logging.getLogger(__name__)
        self._tasks = TaskSet(log, "a question about the metadata log failed")
        links.on_request(PeerMessage.METADATA_APPLIED, self._asked)

    async def wait(self, index: int, *, timeout_ms: int) -> None:
        """Wait until every other live broker has applied the log up to index.

        Raises RequestTimedOut.
        """
        controller = self._controller
        deadline_ms = controller.now_ms() + timeout_ms
        others = [node for node in controller.state.live_brokers if node != controller.node_id]
        await asyncio.gather(*(self._until(node, index, deadline_ms) for node in others))

    async def stop(self) -> None:
        await self._tasks.stop()

    async def _until(self, node: int, index: int, deadline_ms: int) -> None:
        question = encode_message(UntilApplied(index))
        while self._controller.state.is_active(node):
            remaining_ms = deadline_ms - self._controller.now_ms()
            if remaining_ms <= 0:
                raise RequestTimedOut(f"Broker {node} has not applied the decision in time.")
            try:
                await self._links.request(
                    node,
                    PeerMessage.METADATA_APPLIED,
                    question,
                    timeout_ms=min(ATTEMPT_MS, remaining_ms),
                )
            except PeerError:
                await asyncio.sleep(PAUSE_S)
            else:
                return

    def _asked(self, peer: int, header: bytes, _: Any, reply: Callable[..., Any]) -> None:
        question = decode_message(UntilApplied, header)

        async def answer() -> None:
            try:
                deadline_ms = self._controller.now_ms() + ATTEMPT_MS
                await self._controller.until_applied(question.index, deadline_ms)
            except RequestTimedOut:
                return  # the other broker repeats its request
            reply(b"", ())

        self._tasks.spawn(answer())
