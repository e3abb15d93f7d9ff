"""The states of a producer, its id and its sequence numbers (KIP-98, KIP-360).

The file does no I/O. This file follows some rules. Every change of state goes through `move_to` and
the table ALLOWED. The table CALLS lists the states in which an application may make a call.

    UNINITIALIZED -> INITIALIZING -> READY -> IN_TRANSACTION -> COMMITTING_TRANSACTION -> READY
                                                             -> ABORTING_TRANSACTION   -> READY

In ABORTABLE_ERROR the transaction cannot be committed, and after an abort the producer can
continue. FATAL_ERROR is final. Another producer has fenced this one, a permission is missing, or
the producer has failed in another way. A producer without a transactional id uses UNINITIALIZED,
INITIALIZING, READY and FATAL_ERROR.

A producer has an id and an epoch from the cluster, and counts the records of each partition from 0.
A batch that may have been written keeps its sequence numbers over all retries. Idempotence rests on
this rule alone. When the outcome of a batch stays permanently unknown, its numbers are used up. The
producer then takes a new id or epoch and counts from 0 again. Only batches that were certainly not
written get new numbers under the new id or epoch.
"""

from collections.abc import Mapping
from enum import Enum, auto

from ...wire.identifiers import TopicPartition
from ...wire.record_batch import increment_sequence
from ..failures import IllegalProducerState


class ProducerState(Enum):
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
    _S.INITIALIZING: frozenset({
        _S.READY, _S.UNINITIALIZED, _S.ABORTABLE_ERROR, _S.FATAL_ERROR,
    }),
    _S.READY: frozenset({_S.UNINITIALIZED, _S.INITIALIZING, _S.IN_TRANSACTION, _S.FATAL_ERROR}),
    _S.IN_TRANSACTION: frozenset({
        _S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION, _S.ABORTABLE_ERROR, _S.FATAL_ERROR,
    }),
    _S.COMMITTING_TRANSACTION: frozenset({_S.READY, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    _S.ABORTING_TRANSACTION: frozenset({_S.READY, _S.INITIALIZING, _S.FATAL_ERROR}),
    _S.ABORTABLE_ERROR: frozenset({_S.ABORTING_TRANSACTION, _S.UNINITIALIZED, _S.FATAL_ERROR}),
    _S.FATAL_ERROR: frozenset(),
}  # fmt: skip


class Call(Enum):
    """The calls of a transactional producer. The value of each is the method's name."""

    INIT = "init_transactions"
    BEGIN = "begin_transaction"
    SEND = "send"
    SEND_OFFSETS = "send_offsets_to_transaction"
    PREPARE = "prepare"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"


# An interrupted init, commit or abort is continued by the same call, never by another one: the
# coordinator's decision is unknown.
CALLS: Mapping[Call, frozenset[ProducerState]] = {
    Call.INIT: frozenset({_S.UNINITIALIZED}),
    Call.BEGIN: frozenset({_S.READY}),
    Call.SEND: frozenset({_S.IN_TRANSACTION}),
    Call.SEND_OFFSETS: frozenset({_S.IN_TRANSACTION}),
    Call.PREPARE: frozenset({_S.IN_TRANSACTION}),
    Call.COMMIT: frozenset({_S.IN_TRANSACTION, _S.COMMITTING_TRANSACTION}),
    Call.ABORT: frozenset({_S.IN_TRANSACTION, _S.ABORTABLE_ERROR, _S.ABORTING_TRANSACTION}),
}
NO_ID = -1


class ProducerIdentity:
    """The state, id, epoch, and next sequence numbers of a producer."""

    def __init__(self) -> None:
        self.state = ProducerState.UNINITIALIZED
        self.producer_id, self.producer_epoch = NO_ID, NO_ID
        self.problem: Exception | None = None  # the cause of an error state
        self._next: dict[TopicPartition, int] = {}

    def move_to(self, state: ProducerState, problem: Exception | None = None) -> None:
        """Change the state, or raise AssertionError for a transition that the table lacks."""
        assert state in ALLOWED[self.state], f"{self.state.name} -> {state.name}"
        self.state, self.problem = state, problem

    def require(self, call: Call) -> None:
        """Check that this call is allowed now.

        Raises the error that led to ABORTABLE_ERROR or FATAL_ERROR, else IllegalProducerState.
        """
        if self.state in CALLS[call]:
            return
        if self.problem is not None:
            raise self.problem
        allowed = " or ".join(s.name for s in ProducerState if s in CALLS[call])
        raise IllegalProducerState(
            f"{call.value} needs a producer that is {allowed}; this one is {self.state.name}"
        )

    def initialized(self, producer_id: int, producer_epoch: int) -> None:
        """Store a new id and epoch. Sequence numbers of every partition begin at 0 again."""
        self.move_to(ProducerState.READY)
        self.renew(producer_id, producer_epoch)

    def renew(self, producer_id: int, producer_epoch: int) -> None:
        """Store the id and epoch of the next transaction (V2). The state is not changed.

        If they are new, sequence numbers begin at 0 again.
        """
        if (producer_id, producer_epoch) != (self.producer_id, self.producer_epoch):
            self.producer_id, self.producer_epoch = producer_id, producer_epoch
            self._next.clear()

    def take_sequences(self, topic: str, partition: int, count: int) -> int:
        """Reserve `count` sequence numbers for a new batch, and return the first of them."""
        first = self._next.get((topic, partition), 0)
        self._next[(topic, partition)] = increment_sequence(first, count)
        return first
