"""What an idempotent producer must remember, and what an error means to it (KIP-98, KIP-360).

Pure. A producer has an id and an epoch from the cluster; each partition counts its records from 0.
A batch gets its sequence number once and keeps it over all retries: that is the whole of
idempotence. When the fate of a batch stays unknown for good, its numbers are spent; the producer
then takes a new id and counts from 0 again, and nothing that was ever sent under the old id is
sent under the new one.

The states are those of a transactional producer; an idempotent one uses the first three and
FATAL_ERROR.
"""

from collections.abc import Mapping
from enum import Enum, auto

from ..wire.errors import ErrorCode
from ..wire.record_batch import increment_sequence


class ProducerState(Enum):
    """Where a producer stands."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    COMMITTING_TRANSACTION = auto()
    ABORTING_TRANSACTION = auto()
    ABORTABLE_ERROR = auto()
    FATAL_ERROR = auto()


_S = ProducerState
ALLOWED: Mapping[ProducerState, frozenset[ProducerState]] = {
    _S.UNINITIALIZED: frozenset({_S.INITIALIZING, _S.FATAL_ERROR}),
    _S.INITIALIZING: frozenset({_S.READY, _S.UNINITIALIZED, _S.FATAL_ERROR}),
    _S.READY: frozenset({_S.UNINITIALIZED, _S.INITIALIZING, _S.IN_TRANSACTION, _S.FATAL_ERROR}),
    _S.IN_TRANSACTION: frozenset({
        _S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION, _S.ABORTABLE_ERROR, _S.FATAL_ERROR,
    }),
    _S.COMMITTING_TRANSACTION: frozenset({_S.READY, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    _S.ABORTING_TRANSACTION: frozenset({_S.READY, _S.INITIALIZING, _S.FATAL_ERROR}),
    _S.ABORTABLE_ERROR: frozenset({_S.ABORTING_TRANSACTION, _S.FATAL_ERROR}),
    _S.FATAL_ERROR: frozenset(),
}  # fmt: skip


class Fate(Enum):
    """What becomes of a batch after an answer."""

    DONE = auto()
    RETRY = auto()
    FAIL = auto()  # this batch cannot be written; others may
    NEW_ID = auto()  # the broker has forgotten us, or the numbers do not fit any more
    FATAL = auto()  # somebody else took our place


class ProducerIdentity:
    """Id, epoch and the next sequence number of every partition."""

    def __init__(self) -> None:
        self.state = ProducerState.UNINITIALIZED
        self.producer_id, self.producer_epoch = -1, -1
        self._next: dict[tuple[str, int], int] = {}

    def move_to(self, state: ProducerState) -> None:
        """Change the state; AssertionError for a step that the table does not know."""
        assert state in ALLOWED[self.state], f"{self.state.name} -> {state.name}"
        self.state = state

    def initialized(self, producer_id: int, producer_epoch: int) -> None:
        """The cluster gave us an id: every partition counts from 0."""
        self.move_to(ProducerState.READY)
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self._next.clear()

    def take_sequences(self, topic: str, partition: int, count: int) -> int:
        """The first of `count` sequence numbers for a new batch."""
        first = self._next.get((topic, partition), 0)
        self._next[(topic, partition)] = increment_sequence(first, count)
        return first


def fate_after(code: int, *, is_retriable: bool, is_oldest_in_flight: bool) -> Fate:
    """What an answer's error code means for a batch.

    `is_oldest_in_flight`: no batch of the partition with lower sequence numbers is undecided. A gap
    is a plain consequence when an earlier batch has yet to be sent again, and a loss otherwise.
    """
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return Fate.DONE  # a duplicate has been written by an earlier try
    if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        return Fate.NEW_ID if is_oldest_in_flight else Fate.RETRY
    if code == ErrorCode.UNKNOWN_PRODUCER_ID:
        return Fate.NEW_ID
    if code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED):
        return Fate.FATAL
    return Fate.RETRY if is_retriable else Fate.FAIL
