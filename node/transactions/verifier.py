"""The verification by a partition leader that a transaction includes its partition (KIP-890).

Each broker has one verifier. For each transactional id one request to the coordinator is in flight
(a question). Further questions of the same producer id and epoch are joined into the next request.
Of two waiting questions with different epochs the one with the older epoch gets
INVALID_PRODUCER_EPOCH. A question never gets the answer to an earlier question, because its guard
may be newer than that answer. If this node is the coordinator no message is sent.

Kafka answers a waiting question with NETWORK_EXCEPTION when another one of the same epoch arrives,
so that its client retries. Here both are answered.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...coordinator.transactions.messages import VerifyTransaction, VerifyTransactionReply
from ...replication.messages import MalformedPeerMessage, PeerMessage
from ...replication.peer.codec import decode_message, encode_message
from ...replication.peer.transport import PeerError, PeerTransport
from ...runtime.background_task import TaskSet
from ...wire.errors import ErrorCode
from ...wire.identifiers import Identity, TopicPartition
from .service import TransactionCoordinators

ANSWER_TIMEOUT_MARGIN_MS = 2_000  # added to the time that the coordinator may wait
QUESTIONS_MAX = 10_000  # the limit of waiting questions of all ids


class Verified(NamedTuple):
    """An ErrorCode number for each partition, and the ongoing_index of VerifyTransactionReply."""

    errors: list[int]
    ongoing_index: int = 0


@dataclass(slots=True, eq=False)
class _Question:
    """The next verification request about a transactional id, for several produce requests.

    All of them have the same producer id and epoch.
    """

    identity: Identity
    adds: bool
    answer: asyncio.Future[tuple[dict[TopicPartition, int], int]]
    partitions: dict[TopicPartition, None] = field(default_factory=dict)

    def finish(self, error: int) -> None:
        """Answer all partitions with an error."""
        if not self.answer.done():
            self.answer.set_result((dict.fromkeys(self.partitions, int(error)), 0))


class TransactionVerifier:
    """The client of the transaction coordinator for verifications.

    hold_ms: how long the coordinator may wait before it answers CONCURRENT_TRANSACTIONS.
    """

    def __init__(
        self,
        *,
        node_id: int,
        coordinators: TransactionCoordinators,
        links: PeerTransport,
        hold_ms: int,
    ) -> None:
        self._node_id = node_id
        self._coordinators = coordinators
        self._links = links
        self._timeout_ms = hold_ms + ANSWER_TIMEOUT_MARGIN_MS
        # Has an entry while a question about the id is in flight.
        self._waiting: dict[str, list[_Question]] = {}
        self._waiting_count = 0
        self._log = logging.getLogger(f"{__name__}.{node_id}")
        self._tasks = TaskSet(self._log, "a verification failed")

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
    ) -> Verified:
        """Return the coordinator's answer for each partition, in order.

        adds: missing partitions are added (Produce v12, TxnOffsetCommit v5).
        NONE: the partition is in the ongoing transaction.
        TRANSACTION_ABORTABLE: the partition is not in the transaction, and `adds` is False.
        PRODUCER_FENCED, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS: errors of the
        coordinator.
        NETWORK_EXCEPTION, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS:
        the verification may be retried. The caller translates these errors for the client.
        """
        identity = producer_id, producer_epoch
        questions = self._waiting.get(transactional_id)
        if questions is None:
            questions = self._waiting[transactional_id] = []
            self._tasks.spawn(self._run(transactional_id, questions))
        question = self._join(questions, identity, adds)
        if isinstance(question, ErrorCode):
            return Verified([question] * len(partitions))
        question.partitions |= dict.fromkeys(partitions)
        errors, ongoing_index = await asyncio.shield(question.answer)
        return Verified([errors[partition] for partition in partitions], ongoing_index)

    async def stop(self) -> None:
        """Cancel the verifications in flight, which then get NETWORK_EXCEPTION."""
        await self._tasks.stop()

    # -- inside

    def _join(
        self, questions: list[_Question], identity: Identity, adds: bool
    ) -> _Question | ErrorCode:
        """Return a waiting verification request that further partitions may join, maybe a new one.

        Returns an error for an older epoch, or if too many requests wait.
        """
        for question in list(questions):
            if question.identity[0] == identity[0] and question.identity[1] != identity[1]:
                if question.identity[1] > identity[1]:
                    return ErrorCode.INVALID_PRODUCER_EPOCH
                questions.remove(question)
                self._waiting_count -= 1
                question.finish(ErrorCode.INVALID_PRODUCER_EPOCH)
        for question in questions:
            if question.identity == identity and question.adds == adds:
                return question
        if self._waiting_count >= QUESTIONS_MAX:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        question = _Question(identity, adds, asyncio.get_running_loop().create_future())
        questions.append(question)
        self._waiting_count += 1
        return question

    async def _run(self, transactional_id: str, questions: list[_Question]) -> None:
        """Send the waiting verification requests about an id, one after the other."""
        asked: _Question | None = None
        try:
            while questions:
                asked = questions.pop(0)
                self._waiting_count -= 1
                await self._settle(transactional_id, asked)
        finally:
            del self._waiting[transactional_id]
            self._waiting_count -= len(questions)
            for question in (asked, *questions):
                if question is not None:
                    question.finish(ErrorCode.NETWORK_EXCEPTION)

    async def _settle(self, transactional_id: str, question: _Question) -> None:
        partitions = tuple(question.partitions)
        request = VerifyTransaction(
            transactional_id, *question.identity, partitions, adds=question.adds
        )
        try:
            reply = await self._ask(request)
        except Exception:
            self._log.exception(
                "the verification of a transaction of transactional id %r failed", transactional_id
            )
            reply = VerifyTransactionReply(ErrorCode.NETWORK_EXCEPTION)
        if reply.error:
            question.finish(reply.error)
        elif len(reply.errors) != len(partitions):
            question.finish(ErrorCode.NETWORK_EXCEPTION)
        elif not question.answer.done():
            errors = dict(zip(partitions, reply.errors, strict=True))
            question.answer.set_result((errors, reply.ongoing_index))

    async def _ask(self, request: VerifyTransaction) -> VerifyTransactionReply:
        node = self._coordinators.leader_of(request.transactional_id)
        if node is None:
            return VerifyTransactionReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if node == self._node_id:
            return await self._coordinators.verify(request)
        try:
            header, _ = await self._links.request(
                node,
                PeerMessage.VERIFY_TRANSACTION,
                encode_message(request),
                timeout_ms=self._timeout_ms,
            )
            return decode_message(VerifyTransactionReply, header)
        except (PeerError, MalformedPeerMessage) as error:
            self._log.info("node %d cannot verify a transaction: %s", node, error)
            return VerifyTransactionReply(ErrorCode.NETWORK_EXCEPTION)
