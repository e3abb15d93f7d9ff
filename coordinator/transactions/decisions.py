"""What becomes of a request, given the record of its id: pure, nothing is written here.

The order of the checks is Kafka's: producer id, epoch, then whether another write of the id is
under way, then the state. So a zombie is fenced at once, and only the rightful owner waits.
Where Kafka's own answers differ between the versions of a request, the version decides: an
EndTxn with an epoch bump (v5, transaction.version 2) has another table than one that does not.

Against Kafka 4.4, on purpose. Before a pending write Kafka tells even strangers to come again in
some requests; here they hear at once who they are. A retried EndTxn (v5) is known by the identity
that sent it, not by its epoch being one lower: where a V1 client has ended the transaction, or a
new session has begun, a zombie of the epoch before is fenced, and not told that it committed.
"""

from collections.abc import Collection
from dataclasses import dataclass

from ...wire.errors import ErrorCode
from ...wire.identifiers import Identity, TopicPartition
from .record import (
    EPOCH_FIRST,
    EPOCH_LAST,
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TWO_PHASE_TIMEOUT_MS,
    TransactionRecord,
)
from .states import COMPLETED, PREPARED, TransactionState


@dataclass(frozen=True, slots=True)
class Refused:
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Granted:
    """Success without a write; for the client to go on with."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class Change:
    """Success once `record` is durable. ongoing: the prepared transaction that was kept."""

    record: TransactionRecord
    ongoing: Identity | None = None


@dataclass(frozen=True, slots=True)
class FenceProducer:
    """First the open transaction is aborted, with an epoch that nobody gets; then ask again."""

    record: TransactionRecord


@dataclass(frozen=True, slots=True)
class ProducerIdNeeded:
    """Ask again with an id that no producer has had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionContext:
    """is_pending: another write of the id is under way. now_ms: wall clock.

    fresh_producer_id: one that no producer has had, where there is one at hand.
    """

    is_pending: bool = False
    now_ms: int
    fresh_producer_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """expected: who the producer thinks it is (KIP-360)."""

    timeout_ms: int
    expected: Identity | None = None
    enables_two_phase_commit: bool = False
    keeps_prepared: bool = False

    @property
    def granted_timeout_ms(self) -> int:
        """The timeout of the record."""
        return TWO_PHASE_TIMEOUT_MS if self.enables_two_phase_commit else self.timeout_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """bumps_epoch: with transaction.version 2 (EndTxn v5)."""

    identity: Identity
    is_commit: bool
    bumps_epoch: bool


Decision = Refused | Granted | Change | FenceProducer | ProducerIdNeeded
_CONCURRENT = Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
_PRODUCER_FENCED = Refused(ErrorCode.PRODUCER_FENCED)
_UNKNOWN = Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_WRONG_STATE = Refused(ErrorCode.INVALID_TXN_STATE)


def init_producer_id(
    record: TransactionRecord | None,
    request: InitProducerId,
    context: DecisionContext,
) -> Decision:
    """A new session of the id (KIP-98, 360, 588, 939).

    Change: the record's client is who the producer is from now on.
    """
    if context.is_pending:
        return _CONCURRENT
    if record is None:
        if context.fresh_producer_id is None:
            return ProducerIdNeeded()
        return Change(
            TransactionRecord(
                producer_id=context.fresh_producer_id,
                producer_epoch=EPOCH_FIRST,
                timeout_ms=request.granted_timeout_ms,
                state=TransactionState.EMPTY,
                last_update_ms=context.now_ms,
            )
        )
    expected = request.expected
    if expected is not None and not _may_go_on(record, expected):
        return _PRODUCER_FENCED
    if record.state in PREPARED:
        return _CONCURRENT
    if record.state == TransactionState.ONGOING:
        # Kafka aborts first, and looks at the epoch when the producer asks again: so a zombie ends
        # the transaction of the session that has replaced it.
        if expected is not None and expected[1] not in (record.producer_epoch, record.client[1]):
            return _PRODUCER_FENCED
        if request.keeps_prepared:
            return _keep_prepared(record, request, context)
        return abort_transaction(record, context)
    is_current = expected is None or expected[1] == record.producer_epoch
    identity: Identity | ProducerIdNeeded = record.producer_id, record.producer_epoch
    if is_current:
        identity = _bump_producer_epoch(identity, context)
        if isinstance(identity, ProducerIdNeeded):
            return identity
    elif expected is None or expected[1] != record.last_producer_epoch:  # else the answer got lost
        return _PRODUCER_FENCED
    last_epoch = NO_EPOCH
    if expected is not None:
        last_epoch = record.producer_epoch if is_current else record.last_producer_epoch
    return Change(
        record._replace(
            producer_id=identity[0],
            producer_epoch=identity[1],
            previous_producer_id=(
                record.producer_id if is_current else record.previous_producer_id
            ),
            last_producer_epoch=last_epoch,
            timeout_ms=request.granted_timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            start_ms=-1,
            last_update_ms=context.now_ms,
        )
    )


def judge_addition(
    record: TransactionRecord | None,
    identity: Identity,
    partitions: Collection[TopicPartition],
    context: DecisionContext,
) -> Refused | Granted | None:
    """What is known before the partitions are put together, which costs by their number; None: a
    change of the record."""
    if record is None:
        return _UNKNOWN
    if (refusal := _check_identity(record, identity)) is not None:
        return refusal
    if context.is_pending or record.state in PREPARED:
        return _CONCURRENT
    if record.state == TransactionState.ONGOING:
        if record.has_next_identity:
            return _WRONG_STATE  # the prepared transaction that was kept comes first
        if record.partitions.issuperset(partitions):
            return Granted(record.client)
    return None


def add_partitions(
    record: TransactionRecord | None,
    identity: Identity,
    partitions: Collection[TopicPartition],
    context: DecisionContext,
    *,
    transaction_version: int = 0,
) -> Refused | Granted | Change:
    """AddPartitionsToTxn, AddOffsetsToTxn, and the implicit adding of V2 (KIP-890).

    The timeout counts from the first partition of the transaction.
    """
    if (answer := judge_addition(record, identity, partitions, context)) is not None:
        return answer
    assert record is not None
    is_open = record.state == TransactionState.ONGOING
    return Change(
        record._replace(
            state=TransactionState.ONGOING,
            partitions=record.partitions.union(partitions),
            previous_producer_id=record.producer_id,
            start_ms=record.start_ms if is_open else context.now_ms,
            last_update_ms=context.now_ms,
            client_transaction_version=transaction_version,
        )
    )


def verify_partitions(
    record: TransactionRecord | None, identity: Identity, partitions: Collection[TopicPartition]
) -> Refused | list[ErrorCode]:
    """Whether each partition is in the transaction (KIP-890); only what is durable counts."""
    if record is None:
        return _UNKNOWN
    if (refusal := _check_identity(record, identity)) is not None:
        return refusal
    if record.state in PREPARED:
        return _CONCURRENT
    known = frozenset[TopicPartition]() if record.has_next_identity else record.partitions
    return [
        ErrorCode.NONE if partition in known else ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
    ]


def end_transaction(
    record: TransactionRecord | None, request: EndTransaction, context: DecisionContext
) -> Decision:
    """EndTxn. Change: the record is the decision, its client who the producer is next."""
    if record is None:
        return _UNKNOWN
    is_retry = request.bumps_epoch and record.is_ended_by(request.identity)
    if not is_retry and (refusal := _check_identity(record, request.identity)) is not None:
        return refusal
    state = record.state
    # As with Kafka, what is prepared is about to complete.
    if context.is_pending or state in PREPARED:
        return _CONCURRENT
    if state == TransactionState.ONGOING:
        return _prepare(record, request.is_commit, request.bumps_epoch, context)
    is_same_end = state in COMPLETED and record.is_commit == request.is_commit
    if not request.bumps_epoch or is_retry:
        return Granted(record.client) if is_same_end else _WRONG_STATE
    if request.is_commit:
        return _WRONG_STATE
    return _prepare(record, False, True, context)


def abort_transaction(
    record: TransactionRecord | None, context: DecisionContext
) -> Refused | FenceProducer | ProducerIdNeeded:
    """The coordinator's own abort: of a timeout, or before a new session.

    The epoch is raised once, with the decision (KAFKA-9666, KAFKA-19367), and where that uses it
    up the next producer id stands in the same record (KAFKA-20090).
    """
    if context.is_pending:
        return _CONCURRENT
    if record is None or record.state != TransactionState.ONGOING:
        return _WRONG_STATE
    decision = _prepare(record, False, True, context)
    return FenceProducer(decision.record) if isinstance(decision, Change) else decision


# -- inside


def _check_identity(record: TransactionRecord, identity: Identity) -> Refused | None:
    """Why a request is refused that does not come from the client of the id."""
    producer_id, producer_epoch = record.client
    if identity[0] != producer_id:
        return _UNKNOWN
    return None if identity[1] == producer_epoch else _PRODUCER_FENCED


def _may_go_on(record: TransactionRecord, expected: Identity) -> bool:
    """Whether the producer id is the current one, or the one that was used up before it."""
    producer_id, producer_epoch = expected
    return producer_id in (record.producer_id, record.client[0]) or (
        producer_id == record.previous_producer_id and producer_epoch >= EPOCH_LAST
    )


def _bump_producer_epoch(client: Identity, context: DecisionContext) -> Identity | ProducerIdNeeded:
    """The client's next identity: epoch 0 of a new producer id where the last epoch is used up."""
    producer_id, producer_epoch = client
    if producer_epoch < EPOCH_LAST:
        return producer_id, producer_epoch + 1
    return (
        ProducerIdNeeded() if context.fresh_producer_id is None else (context.fresh_producer_id, 0)
    )


def _prepare(
    record: TransactionRecord, is_commit: bool, bumps_epoch: bool, context: DecisionContext
) -> Change | ProducerIdNeeded:
    """The decision. KIP-890: with V2 its epoch is one higher, in the markers too."""
    is_open = record.state == TransactionState.ONGOING
    prepared = record._replace(
        state=TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
        start_ms=record.start_ms if is_open else context.now_ms,
        last_update_ms=context.now_ms,
        client_transaction_version=2 if bumps_epoch else 0,
    )
    if not bumps_epoch:
        return Change(prepared)
    producer_id, producer_epoch = record.client
    bumped = _bump_producer_epoch(record.client, context)
    if isinstance(bumped, ProducerIdNeeded):
        return bumped
    next_identity = NO_PRODUCER_ID, NO_EPOCH
    if producer_epoch >= EPOCH_LAST:
        next_identity = bumped[0], NO_EPOCH  # its epoch is 0, as Kafka reads it
    elif record.has_next_identity:
        next_identity = bumped
    return Change(
        prepared._replace(
            producer_epoch=min(record.producer_epoch + 1, EPOCH_MAX),
            next_producer_id=next_identity[0],
            next_producer_epoch=next_identity[1],
            previous_producer_id=producer_id,
            last_producer_epoch=producer_epoch,
        )
    )


def _keep_prepared(
    record: TransactionRecord, request: InitProducerId, context: DecisionContext
) -> Change | ProducerIdNeeded:
    """A new session keeps the prepared transaction, under an epoch of its own (KIP-939)."""
    next_identity = _bump_producer_epoch(record.client, context)
    if isinstance(next_identity, ProducerIdNeeded):
        return next_identity
    kept = record._replace(
        next_producer_id=next_identity[0],
        next_producer_epoch=next_identity[1],
        timeout_ms=(
            TWO_PHASE_TIMEOUT_MS if request.enables_two_phase_commit else record.timeout_ms
        ),
        last_update_ms=context.now_ms,
    )
    return Change(kept, ongoing=(record.producer_id, record.producer_epoch))
