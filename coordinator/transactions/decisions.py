"""The coordinator's decisions, computed from a request and the record of its id, as pure functions.

The order of the checks is Kafka's, which is producer id, epoch, then whether another write of the
id is in flight, then the state. A zombie is therefore fenced immediately, and only the current
producer waits. If Kafka's answers differ between versions of a request, the version decides. For
example, an EndTxn that raises the epoch (v5, transaction.version 2) follows other rules than older
versions.

There are two deliberate differences from Kafka 4.4. During a pending write Kafka answers some
requests of other producers with a retriable error, while here they get their fencing error
immediately. A retried EndTxn (v5) is recognised by the producer id and epoch that sent it, not by
an epoch that is one lower. If a V1 client has ended the transaction, or a new session has begun, a
zombie with the previous epoch is therefore fenced, and does not get an answer that it has
committed.
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
    """Success without a write. `identity` is the client's producer id and epoch from now on."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class Change:
    """Success once `record` is durable. `ongoing` is the prepared transaction that was kept."""

    record: TransactionRecord
    ongoing: Identity | None = None


@dataclass(frozen=True, slots=True)
class FenceProducer:
    """The coordinator must abort the open transaction before it decides about the request.

    `record` begins that abort, with an epoch that no client has.
    """

    record: TransactionRecord


@dataclass(frozen=True, slots=True)
class ProducerIdNeeded:
    """The coordinator needs a new producer id, and must then decide about the request again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionContext:
    """The inputs of the coordinator's decisions besides the record and the request.

    is_pending: another write of the id is in flight. now_ms: wall-clock time. fresh_producer_id: an
    unused producer id, if there is one. serves_v2: the cluster's transaction.version is above 0. At
    version 0 Kafka cannot store the transaction version of a client with a bumped epoch.
    """

    is_pending: bool = False
    now_ms: int
    fresh_producer_id: int | None = None
    serves_v2: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """A request for a new session. `expected` is the producer's last id and epoch (KIP-360)."""

    timeout_ms: int
    expected: Identity | None = None
    enables_two_phase_commit: bool = False
    keeps_prepared: bool = False

    @property
    def granted_timeout_ms(self) -> int:
        """Return the requested timeout, or TWO_PHASE_TIMEOUT_MS for two-phase commit."""
        return TWO_PHASE_TIMEOUT_MS if self.enables_two_phase_commit else self.timeout_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """The request to end a transaction, with `bumps_epoch` for transaction.version 2."""

    identity: Identity
    is_commit: bool
    bumps_epoch: bool


Decision = Refused | Granted | Change | FenceProducer | ProducerIdNeeded
_CONCURRENT = Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
_PRODUCER_FENCED = Refused(ErrorCode.PRODUCER_FENCED)
_UNKNOWN = Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_WRONG_STATE = Refused(ErrorCode.INVALID_TXN_STATE)
_V2_NOT_SERVED = Refused(ErrorCode.UNSUPPORTED_VERSION)


def init_producer_id(
    record: TransactionRecord | None,
    request: InitProducerId,
    context: DecisionContext,
) -> Decision:
    """Begin a new session of a transactional id (KIP-98, 360, 588, 939).

    With a Change, the producer id and epoch of the new client are in the record.
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
        # Kafka aborts first and checks the epoch in the retry, so that a zombie ends the
        # transaction of the session which has replaced it.
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
    elif expected is None or expected[1] != record.last_producer_epoch:
        # Otherwise the answer was lost.
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
    """Return the answer to a request to add partitions if the record need not change, else None.

    This check is fast, because it does not merge the partitions.
    """
    if record is None:
        return _UNKNOWN
    if (refusal := _check_identity(record, identity)) is not None:
        return refusal
    if context.is_pending or record.state in PREPARED:
        return _CONCURRENT
    if record.state == TransactionState.ONGOING:
        if record.has_next_identity:
            return _WRONG_STATE  # the prepared transaction must be completed first
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
    """Decide AddPartitionsToTxn, AddOffsetsToTxn, and the implicit addition of V2 (KIP-890).

    The timeout starts with the first partition of the transaction.
    """
    if (answer := judge_addition(record, identity, partitions, context)) is not None:
        return answer
    if transaction_version >= 2 and not context.serves_v2:
        return _V2_NOT_SERVED
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
    """Return NONE for each partition in the durable transaction, else an error (KIP-890)."""
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
    """Decide EndTxn. With a Change, the next producer id and epoch are in the record."""
    if record is None:
        return _UNKNOWN
    is_retry = request.bumps_epoch and record.is_ended_by(request.identity)
    if not is_retry and (refusal := _check_identity(record, request.identity)) is not None:
        return refusal
    state = record.state
    # As in Kafka, because a prepared transaction is about to complete.
    if context.is_pending or state in PREPARED:
        return _CONCURRENT
    if state == TransactionState.ONGOING:
        if request.bumps_epoch and not context.serves_v2:
            return _V2_NOT_SERVED
        return _prepare(record, request.is_commit, request.bumps_epoch, context)
    is_same_end = state in COMPLETED and record.is_commit == request.is_commit
    if not request.bumps_epoch or is_retry:
        return Granted(record.client) if is_same_end else _WRONG_STATE
    if request.is_commit:
        return _WRONG_STATE
    return _prepare(record, False, True, context) if context.serves_v2 else _V2_NOT_SERVED


def abort_transaction(
    record: TransactionRecord | None, context: DecisionContext
) -> Refused | FenceProducer | ProducerIdNeeded:
    """Decide an abort by the coordinator itself, after a timeout or before a new session.

    The epoch is raised once, with the decision (KAFKA-9666, KAFKA-19367). If the epoch is
    exhausted, the same record has the next producer id (KAFKA-20090).
    """
    if context.is_pending:
        return _CONCURRENT
    if record is None or record.state != TransactionState.ONGOING:
        return _WRONG_STATE
    decision = _prepare(record, False, True, context)
    return FenceProducer(decision.record) if isinstance(decision, Change) else decision


# -- inside


def _check_identity(record: TransactionRecord, identity: Identity) -> Refused | None:
    """Return an error for a request that is not from the current client of the id, else None."""
    producer_id, producer_epoch = record.client
    if identity[0] != producer_id:
        return _UNKNOWN
    return None if identity[1] == producer_epoch else _PRODUCER_FENCED


def _may_go_on(record: TransactionRecord, expected: Identity) -> bool:
    """Return whether the expected producer id is current, or was replaced after its last epoch."""
    producer_id, producer_epoch = expected
    return producer_id in (record.producer_id, record.client[0]) or (
        producer_id == record.previous_producer_id and producer_epoch >= EPOCH_LAST
    )


def _bump_producer_epoch(client: Identity, context: DecisionContext) -> Identity | ProducerIdNeeded:
    """Return the identity after an epoch bump.

    After the last epoch, this is epoch 0 of a new producer id.
    """
    producer_id, producer_epoch = client
    if producer_epoch < EPOCH_LAST:
        return producer_id, producer_epoch + 1
    return (
        ProducerIdNeeded() if context.fresh_producer_id is None else (context.fresh_producer_id, 0)
    )


def _prepare(
    record: TransactionRecord, is_commit: bool, bumps_epoch: bool, context: DecisionContext
) -> Change | ProducerIdNeeded:
    """Return the record that begins a commit or an abort.

    With transaction.version 2 the epoch is raised by one, and the markers have the raised epoch
    (KIP-890).
    """
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
        next_identity = bumped[0], NO_EPOCH  # its epoch is 0, as in Kafka
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
    """Keep the prepared transaction for a new session, which gets its own epoch (KIP-939)."""
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
