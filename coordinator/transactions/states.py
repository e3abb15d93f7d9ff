"""The states of a transaction and their order (KIP-98, KIP-360, KIP-890).

The decision to commit or abort is durable in PrepareCommit or PrepareAbort. Complete* means that
every partition has its marker. PrepareEpochFence lies between the coordinator's decision to fence a
producer and the PrepareAbort that executes the decision. PrepareEpochFence is never written.
"""

from collections.abc import Mapping
from enum import IntEnum


class TransactionState(IntEnum):
    """The states, with the numbers of Kafka's transaction log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        """Return the name of the state in Kafka's tools and protocol."""
        return "".join(part.capitalize() for part in self.name.split("_"))


_S = TransactionState
COMPLETED = frozenset({_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
PREPARED = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
IDLE = frozenset({_S.EMPTY}) | COMPLETED

# The states that may precede a state. With transaction.version 2 an abort without partitions is a
# decision, too (KIP-890), so PrepareAbort also follows Empty and Complete*.
ALLOWED_PREVIOUS: Mapping[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: IDLE,
    _S.ONGOING: IDLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: IDLE | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: IDLE,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
MAY_EXPIRE = IDLE
NEVER_WRITTEN = frozenset({_S.PREPARE_EPOCH_FENCE, _S.DEAD})  # Dead is written as a tombstone
BY_NAME: Mapping[str, TransactionState] = {state.kafka_name: state for state in _S}


BEFORE_ONGOING = "transactions.before-ongoing"
AFTER_ONGOING = "transactions.after-ongoing"
BEFORE_PREPARE = "transactions.before-prepare"
AFTER_PREPARE = "transactions.after-prepare"  # durable, before any marker is sent
AFTER_SOME_MARKERS = "transactions.after-some-markers"
# All markers are written, but the completion is not durable yet.
AFTER_ALL_MARKERS = "transactions.after-all-markers"
AFTER_COMPLETE = "transactions.after-complete"
BEFORE = {TransactionState.ONGOING: BEFORE_ONGOING} | dict.fromkeys(PREPARED, BEFORE_PREPARE)
AFTER = {TransactionState.ONGOING: AFTER_ONGOING} | dict.fromkeys(PREPARED, AFTER_PREPARE)
