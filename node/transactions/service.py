"""The transaction coordinator of one node, with all its shards (KIP-98).

A transactional id belongs to a shard by its Java hash. The shard's Raft leader is the coordinator,
and the coordinator epoch in markers is the Raft term. This file finds the shard of a request,
fences late requests, and gives the rules of coordinator/transactions for each API to
shard_leader.py, which executes them. shard_timeouts.py holds the shards that are led here.
"""

import asyncio
import logging
from collections.abc import Collection, Iterator

from ...coordinator.sharding import shard_for
from ...coordinator.transactions.additions import Addition
from ...coordinator.transactions.answers import (
    NO_IDENTITY,
    ProducerIdentityAnswer,
    TransactionDescription,
)
from ...coordinator.transactions.connection_fence import StaleConnection
from ...coordinator.transactions.decisions import (
    Change,
    Decision,
    DecisionContext,
    EndTransaction,
    Granted,
    InitProducerId,
    Refused,
    end_transaction,
    init_producer_id,
    verify_partitions,
)
from ...coordinator.transactions.messages import VerifyTransaction, VerifyTransactionReply
from ...coordinator.transactions.record import TransactionRecord
from ...coordinator.transactions.states import TransactionState
from ...replication.messages import MalformedPeerMessage, PeerMessage
from ...replication.peer.codec import decode_message, encode_message
from ...replication.peer.handlers import Buffer, Reply
from ...replication.peer.transport import PeerTransport
from ...runtime.background_task import TaskSet
from ...runtime.rate_limited_log import LimitedLog
from ...wire.errors import ErrorCode
from ...wire.identifiers import Identity, TopicPartition
from .shard_leader import ShardLeader
from .shard_timeouts import ShardLeaders

QUESTIONS_MAX = 10_000  # the limit of concurrent requests of other brokers


class TransactionCoordinators:
    """The coordinators of one node, for handlers.

    A shard that another node leads answers NOT_COORDINATOR, a shard that is not ready
    COORDINATOR_LOAD_IN_PROGRESS. connection_id is that of RequestContext, or None for internal
    callers. StaleConnection is raised when the connection must be closed instead of answered
    (KAFKA-17754).
    """

    def __init__(self, leaders: ShardLeaders, links: PeerTransport) -> None:
        self.leaders = leaders
        self._settings = leaders.settings
        self._events = leaders.events
        self._log = logging.getLogger(f"{__name__}.{leaders.node_id}")
        self._limited_log = LimitedLog(self._log)
        self._questions = TaskSet(self._log, "a verification failed")
        links.on_request(PeerMessage.VERIFY_TRANSACTION, self._asked)

    async def stop(self) -> None:
        """Stop the coordinators, and answer requests in flight with NOT_COORDINATOR.

        Clients then retry elsewhere.
        """
        await self.leaders.stop()
        await self._questions.stop()

    # -- shards and their state

    def shard_of(self, transactional_id: str) -> int:
        """Return the number of the shard to which a transactional id belongs."""
        return shard_for(transactional_id, len(self.leaders.shards))

    def leader_of(self, transactional_id: str) -> int | None:
        """Return the node that coordinates this id, or None without a leader.

        This is the node that FindCoordinator returns.
        """
        return self.leaders.raft_groups[self.shard_of(transactional_id)].leader_id

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Return the state of a transaction, or its `error`.

        The error is TRANSACTIONAL_ID_NOT_FOUND or a coordinator error.
        """
        leader = self._leader(transactional_id)
        if isinstance(leader, ShardLeader):
            return _description(leader, transactional_id)
        return TransactionDescription(transactional_id=transactional_id, error=leader)

    def partition_count(self, transactional_id: str) -> int:
        """Return the number of partitions without a written marker in the transaction of an id."""
        leader = self._leader(transactional_id)
        return len(leader.unmarked(transactional_id)) if isinstance(leader, ShardLeader) else 0

    def descriptions(self) -> Iterator[TransactionDescription]:
        """Yield all transactional ids of the shards led here, without their partitions.

        Transactions may change during the iteration.
        """
        for leader in list(self.leaders):
            for transactional_id in list(leader.shard.records):
                if transactional_id in leader.shard.records:
                    yield _description(leader, transactional_id, has_partitions=False)

    # -- requests

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        expected: tuple[int, int] | None = None,
        enables_two_phase_commit: bool = False,
        keeps_prepared: bool = False,
        connection_id: int | None = None,
        asked_by: str = "",
    ) -> ProducerIdentityAnswer:
        """Begin a producer's session (KIP-98, 360, 588, 890, 939).

        expected: the producer's (producer id, epoch). asked_by: a description of the client.
        """
        settings = self._settings
        if not transactional_id:
            return ProducerIdentityAnswer(error=ErrorCode.INVALID_REQUEST)
        if enables_two_phase_commit and not settings.two_phase_commit_enabled:
            return ProducerIdentityAnswer(error=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not enables_two_phase_commit and not 0 < timeout_ms <= settings.timeout_max_ms:
            return ProducerIdentityAnswer(error=ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        leader = self._leader(transactional_id)
        if not isinstance(leader, ShardLeader):
            return ProducerIdentityAnswer(error=leader)
        request = InitProducerId(
            timeout_ms=timeout_ms,
            expected=expected,
            enables_two_phase_commit=enables_two_phase_commit,
            keeps_prepared=keeps_prepared,
        )
        known = leader.current(transactional_id)
        if known is not None and expected in (None, known.client):
            self._check_connection(leader, transactional_id, known.client, connection_id)
        judged: list[TransactionRecord] = []  # the records on which decisions were based

        def decide(record: TransactionRecord | None, context: DecisionContext) -> Decision:
            if record is not None:
                judged.append(record)
            return init_producer_id(record, request, context)

        error, decision = await leader.execute(transactional_id, decide, hold_ms=settings.hold_ms)
        self._note_refusal(leader, transactional_id, "InitProducerId", expected, error)
        answer = _identity(error, decision)
        if not answer.error and judged and expected is None:
            self._note_new_session(transactional_id, judged[0], answer, asked_by)
        if not answer.error and connection_id is not None:
            identity = answer.producer_id, answer.producer_epoch
            leader.fence.note(transactional_id, identity, connection_id)
        return answer

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        connection_id: int | None = None,
        transaction_version: int = 0,
    ) -> int:
        """Return NONE when all partitions are durably in the transaction, else an error.

        transaction_version: 2 when the partition's leader adds the partition for the client
        (KIP-890).
        """
        leader = self._leader(transactional_id)
        if not isinstance(leader, ShardLeader):
            return leader
        identity = producer_id, producer_epoch
        known = leader.current(transactional_id)
        if known is not None and known.client == identity:
            self._check_connection(leader, transactional_id, identity, connection_id)
        addition = Addition(identity, partitions, transaction_version)
        error = await leader.add(transactional_id, addition)
        self._note_refusal(leader, transactional_id, "AddPartitionsToTxn", identity, error)
        return error

    async def verify(self, request: VerifyTransaction) -> VerifyTransactionReply:
        """Check that partitions are in a transaction (KIP-890), or add them for `request.adds`."""
        transactional_id = request.transactional_id
        identity = request.producer_id, request.producer_epoch
        if request.adds:
            error = await self.add_partitions(
                transactional_id, *identity, request.partitions, transaction_version=2
            )
            return VerifyTransactionReply(error or 0, (0,) * len(request.partitions))
        leader = self._leader(transactional_id)
        if not isinstance(leader, ShardLeader):
            return VerifyTransactionReply(leader)
        record = leader.current(transactional_id)
        found = verify_partitions(record, identity, request.partitions)
        if isinstance(found, Refused):
            self._note_refusal(leader, transactional_id, "Produce", identity, found.error)
            return VerifyTransactionReply(found.error)
        index = 0 if record is None else record.version
        return VerifyTransactionReply(0, tuple(map(int, found)), index)

    async def end_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        bumps_epoch: bool,
        connection_id: int | None = None,
        waited_ms: int = 0,
    ) -> ProducerIdentityAnswer:
        """Begin to commit or abort a transaction, and return when the prepared record is durable.

        After an answer with the error NONE the markers will be written, by this or a later
        coordinator. bumps_epoch: EndTxn v5 (transaction.version 2), whose answer has the next
        epoch. waited_ms: the time that the request's bytes spent in the kernel.
        """
        leader = self._leader(transactional_id)
        if not isinstance(leader, ShardLeader):
            return ProducerIdentityAnswer(error=leader)
        identity = producer_id, producer_epoch
        known = leader.current(transactional_id)
        # With version 2 a late EndTxn has an old epoch. A prepared transaction may be ended by any
        # process that has its producer id and epoch (KIP-939).
        is_exposed = not bumps_epoch and known is not None and not known.is_two_phase
        if is_exposed and known is not None and known.client == identity:
            if connection_id is not None and waited_ms > self._settings.stale_request_ms:
                self._refuse_connection(f"EndTxn of {transactional_id!r} waited {waited_ms} ms")
            self._check_connection(leader, transactional_id, identity, connection_id)
        request = EndTransaction(identity=identity, is_commit=is_commit, bumps_epoch=bumps_epoch)
        error, decision = await leader.execute(
            transactional_id,
            lambda record, context: end_transaction(record, request, context),
            hold_ms=self._settings.hold_ms,
            waits_for_markers=False,
        )
        self._note_refusal(leader, transactional_id, "EndTxn", identity, error)
        return _identity(error, decision)

    # -- events

    def _note_new_session(
        self, name: str, old: TransactionRecord, new: ProducerIdentityAnswer, asked_by: str
    ) -> None:
        had_open = old.state is TransactionState.ONGOING
        aborted = ", whose transaction was aborted" if had_open else ""
        words = (
            f"{name}: a new session{asked_by and f' of {asked_by}'} fences the previous producer"
            f"{aborted} (producer {old.producer_id} epoch {old.producer_epoch} to"
            f" producer {new.producer_id} epoch {new.producer_epoch})"
        )
        self._events.tell(
            "fence",
            name,
            "new session",
            words,
            transactional_id=name,
            producer_id=old.producer_id,
            epoch=old.producer_epoch,
            new_producer_id=new.producer_id,
            new_epoch=new.producer_epoch,
            asked_by=asked_by,
            aborts=had_open,
        )

    def _note_refusal(
        self, leader: ShardLeader, name: str, api: str, identity: Identity | None, error: int
    ) -> None:
        """Log that a producer of an older session was refused, with the current id and epoch."""
        current = leader.current(name)
        if error != ErrorCode.PRODUCER_FENCED or identity is None or current is None:
            return
        words = (
            f"{name}: {api} of producer {identity[0]} epoch {identity[1]} is refused,"
            f" because the id is at producer {current.producer_id} epoch {current.producer_epoch}"
        )
        self._events.tell(
            "fence",
            name,
            "older session",
            words,
            transactional_id=name,
            producer_id=identity[0],
            epoch=identity[1],
            api=api,
            new_producer_id=current.producer_id,
            new_epoch=current.producer_epoch,
        )

    # -- inside

    def _leader(self, transactional_id: str) -> ShardLeader | ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        return self.leaders.find(self.shard_of(transactional_id))

    def _check_connection(
        self,
        leader: ShardLeader,
        transactional_id: str,
        identity: Identity,
        connection_id: int | None,
    ) -> None:
        if connection_id is None or not self._settings.has_connection_fence:
            return
        try:
            leader.fence.check(transactional_id, identity, connection_id)
        except StaleConnection as reason:
            self._refuse_connection(str(reason))

    def _refuse_connection(self, reason: str) -> None:
        if self._settings.has_connection_fence:
            self._log.info("a connection is closed: %s", reason)
            raise StaleConnection(reason)

    def _asked(self, peer: int, header: bytes, _frames: list[Buffer], reply: Reply) -> None:
        """Answer a VERIFY_TRANSACTION request of a partition's leader."""
        try:
            request = decode_message(VerifyTransaction, header)
        except MalformedPeerMessage as error:
            now_s = asyncio.get_running_loop().time()
            self._limited_log.log(
                logging.WARNING,
                f"verifications from {peer}",
                now_s,
                "a verification request from node %d is invalid: %s",
                peer,
                error,
            )
            reply(encode_message(VerifyTransactionReply(ErrorCode.INVALID_REQUEST)), ())
            return
        if len(self._questions) >= QUESTIONS_MAX:
            busy = VerifyTransactionReply(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            reply(encode_message(busy), ())
            return
        self._questions.spawn(self._answer(request, reply))

    async def _answer(self, request: VerifyTransaction, reply: Reply) -> None:
        try:
            answer = await self.verify(request)
        except Exception:
            self._log.exception(
                "the verification of a transaction of transactional id %r failed",
                request.transactional_id,
            )
            answer = VerifyTransactionReply(ErrorCode.UNKNOWN_SERVER_ERROR)
        reply(encode_message(answer), ())


def _identity(error: ErrorCode, decision: Decision | None) -> ProducerIdentityAnswer:
    """Return the answer to the client, with the error or the decided producer id and epoch."""
    if error:
        return ProducerIdentityAnswer(error=error)
    ongoing = NO_IDENTITY
    if isinstance(decision, Change):
        identity, ongoing = decision.record.client, decision.ongoing or NO_IDENTITY
    else:
        assert isinstance(decision, Granted)
        identity = decision.identity
    return ProducerIdentityAnswer(
        producer_id=identity[0], producer_epoch=identity[1], ongoing=ongoing
    )


def _description(
    leader: ShardLeader, transactional_id: str, *, has_partitions: bool = True
) -> TransactionDescription:
    record = leader.current(transactional_id)
    if record is None:
        return TransactionDescription(
            transactional_id=transactional_id, error=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        )
    return TransactionDescription(
        transactional_id=transactional_id,
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        state=record.state.kafka_name,
        timeout_ms=record.timeout_ms,
        start_ms=record.start_ms,
        partitions=tuple(sorted(leader.unmarked(transactional_id))) if has_partitions else (),
    )
