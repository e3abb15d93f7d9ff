"""The coordinator's record of one transactional id, and the transitions between records.

A record has two pairs of producer id and epoch. The transaction's pair (`producer_id`,
`producer_epoch`) is in its batches and markers. The client's pair is the same except in two cases,
in which it is stored separately until the transaction is complete. An end that exhausts the epochs
gives the client a new producer id. A prepared transaction that another session has taken over keeps
the epoch of its batches (KIP-939).

`check_transition` is called where a record is applied. A decision that it refuses is a bug.
"""

from typing import NamedTuple

from ...runtime.c_calls import new_tuple
from ...wire.identifiers import Identity, TopicPartition
from ...wire.messages.transaction_log import (
    TransactionLogValue,
    decode_transaction_log_value,
    encode_transaction_log_value,
)
from ...wire.primitives import MalformedFrame
from .states import ALLOWED_PREVIOUS, COMPLETED, NEVER_WRITTEN, PREPARED, TransactionState

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME_MS = -1
EPOCH_FIRST = 0  # the epoch of a new id
EPOCH_MAX = 32_767  # used only to fence; no client gets this epoch
EPOCH_LAST = EPOCH_MAX - 1  # the last epoch that a client can have
TWO_PHASE_TIMEOUT_MS = 2**31 - 1  # as in Kafka; such a transaction has no timeout (KIP-939)
NEVER = 0  # the version of a missing record


class TransactionRecord(NamedTuple):
    """The record of one transactional id, with wall-clock times in ms.

    client_transaction_version: 2 if the client's epoch is raised with each end (KIP-890). version:
    the Raft index at which the record was written.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME_MS
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH
    client_transaction_version: int = 0
    version: int = NEVER

    @property
    def has_next_identity(self) -> bool:
        """Return whether the client has another producer id or epoch than its transaction."""
        return self.next_producer_id != NO_PRODUCER_ID

    @property
    def client(self) -> Identity:
        """Return the producer id and epoch that the client uses, or gets after the prepared end."""
        if self.has_next_identity:
            return self.next_producer_id, max(self.next_producer_epoch, 0)
        return self.producer_id, self.producer_epoch

    @property
    def is_two_phase(self) -> bool:
        """Return whether the transaction has no timeout and the id never expires (KIP-939)."""
        return self.timeout_ms == TWO_PHASE_TIMEOUT_MS

    @property
    def is_commit(self) -> bool:
        """Return whether the decision of a Prepare* or Complete* state is to commit."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    def is_ended_by(self, identity: Identity) -> bool:
        """Return whether this producer id and epoch ended the transaction of this record.

        An EndTxn with them is then a retry.
        """
        return (
            self.client_transaction_version >= 2
            and self.state in PREPARED | COMPLETED
            and identity == (self.previous_producer_id, self.last_producer_epoch)
        )

    def is_timed_out(self, now_ms: int, watched_ms: float = 0) -> bool:
        """Return whether the transaction has been ongoing for longer than its timeout.

        The timeout starts with the transaction. watched_ms: the monotonic time for which the
        transaction was seen ongoing, in case the wall clock was set back.
        """
        return (
            self.state == TransactionState.ONGOING
            and not self.is_two_phase
            and (self.start_ms + self.timeout_ms < now_ms or watched_ms > self.timeout_ms)
        )

    def completed(self, now_ms: int) -> "TransactionRecord":
        """Return the record of the completed transaction, after all its markers were written."""
        producer_id, producer_epoch = self.client
        return self._replace(
            state=(
                TransactionState.COMPLETE_COMMIT
                if self.is_commit
                else TransactionState.COMPLETE_ABORT
            ),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_EPOCH,
            partitions=frozenset(),
            last_update_ms=max(now_ms, self.last_update_ms),
        )


def check_transition(old: TransactionRecord | None, new: TransactionRecord) -> str | None:
    """Return the reason why `new` may not follow `old`, or None if it may."""
    if new.state in NEVER_WRITTEN:
        return f"{new.state.kafka_name} is never written"
    if not (0 <= new.producer_epoch <= EPOCH_MAX and new.producer_id >= 0 and new.timeout_ms > 0):
        return "a producer id, epoch or timeout is out of range"
    if old is None:
        return None if _is_blank(new) else "an id begins with Empty"
    if old.state not in ALLOWED_PREVIOUS[new.state]:
        return f"{new.state.kafka_name} does not follow {old.state.kafka_name}"
    match new.state:
        case TransactionState.EMPTY:
            is_right = _is_blank(new) and _is_next_session(old, new)
        case TransactionState.ONGOING:
            is_right = _same_transaction(old, new) and old.partitions <= new.partitions
        case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT:
            is_right = _is_decision(old, new)
        case _:
            completed = old.completed(new.last_update_ms)
            is_right = new == completed._replace(
                last_update_ms=new.last_update_ms, version=new.version
            )
    return None if is_right else f"{new.state.kafka_name} does not fit the record before"


def _is_blank(record: TransactionRecord) -> bool:
    return (
        record.state == TransactionState.EMPTY
        and not record.partitions
        and record.start_ms == NO_TIME_MS
        and not record.has_next_identity
        and record.producer_epoch <= EPOCH_LAST
    )


def _is_next_session(old: TransactionRecord, new: TransactionRecord) -> bool:
    if new.producer_id != old.producer_id:
        return new.producer_epoch == 0
    return new.producer_epoch in (old.producer_epoch, old.producer_epoch + 1)


def _same_transaction(old: TransactionRecord, new: TransactionRecord) -> bool:
    is_open = old.state == TransactionState.ONGOING
    return (
        (old.producer_id, old.producer_epoch) == (new.producer_id, new.producer_epoch)
        and new.timeout_ms in (old.timeout_ms, TWO_PHASE_TIMEOUT_MS)
        and new.start_ms >= 0
        and (not is_open or new.start_ms == old.start_ms)
    )


def _is_decision(old: TransactionRecord, new: TransactionRecord) -> bool:
    raised = new.client_transaction_version >= 2 and old.producer_epoch < EPOCH_MAX
    return (
        new.producer_id == old.producer_id
        and new.producer_epoch == old.producer_epoch + raised
        and (new.producer_epoch <= EPOCH_LAST or new.has_next_identity)
        and new.partitions == old.partitions
        and new.timeout_ms == old.timeout_ms
        and (old.state != TransactionState.ONGOING or new.start_ms == old.start_ms)
    )


# -- bytes


def encode_record(record: TransactionRecord) -> bytes:
    """Encode as Kafka's TransactionLogValue with sorted partitions, without `record.version`."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(record.partitions):
        topics.setdefault(topic, []).append(index)
    is_empty = record.state == TransactionState.EMPTY
    return encode_transaction_log_value(
        TransactionLogValue(
            record.producer_id,
            record.producer_epoch,
            record.timeout_ms,
            record.state,
            None if is_empty else tuple([(t, tuple(i)) for t, i in topics.items()]),
            record.last_update_ms,
            record.start_ms,
            record.previous_producer_id,
            record.next_producer_id,
            record.client_transaction_version,
            record.next_producer_epoch,
            record.last_producer_epoch,
        )
    )


def decode_record(data: bytes, version: int = NEVER) -> TransactionRecord:
    """Decode Kafka's TransactionLogValue, or raise MalformedFrame."""
    value = decode_transaction_log_value(data)
    state = _STATES.get(value.state)
    if state is None:
        raise MalformedFrame(f"{value.state} is no state of a transaction")
    partitions = [(topic, index) for topic, indexes in value.partitions or () for index in indexes]
    fields = (
        value.producer_id,
        value.producer_epoch,
        value.timeout_ms,
        state,
        value.last_update_ms,
        frozenset(partitions),
        value.start_ms,
        value.previous_producer_id,
        value.next_producer_id,
        value.next_producer_epoch,
        value.last_producer_epoch,
        value.client_transaction_version,
        version,
    )
    return new_tuple(TransactionRecord, fields)


_STATES = {int(state): state for state in TransactionState}
