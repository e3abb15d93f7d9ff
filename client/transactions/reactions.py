"""The reactions of a producer to error codes, by request (KIP-98, 360, 447, 588, 890).

The file has only tables. `fate_after` decides about a batch, `reaction_to` about everything else.
Retriable codes in no table are retried. Other codes from a coordinator end the producer, because
its state and the coordinator's state differ. Other codes from a partition's leader end one batch.
"""

from collections.abc import Mapping
from enum import Enum, auto

from ...wire.errors import ErrorCode, error_for

_E = ErrorCode


class Request(Enum):
    """The requests of a transactional producer, except Produce."""

    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS = 24
    ADD_OFFSETS = 25
    END_TRANSACTION = 26
    COMMIT_OFFSETS = 28


class Reaction(Enum):
    DONE = auto()
    RETRY = auto()  # the same coordinator, a little later
    FIND_COORDINATOR = auto()  # it has moved
    ABORTABLE = auto()
    FATAL = auto()


_MOVED: dict[int, Reaction] = {
    _E.NONE: Reaction.DONE,
    _E.NOT_COORDINATOR: Reaction.FIND_COORDINATOR,
    _E.COORDINATOR_NOT_AVAILABLE: Reaction.FIND_COORDINATOR,
    _E.NETWORK_EXCEPTION: Reaction.FIND_COORDINATOR,
    _E.REQUEST_TIMED_OUT: Reaction.FIND_COORDINATOR,
}
_ABORTABLE: dict[int, Reaction] = {_E.TRANSACTION_ABORTABLE: Reaction.ABORTABLE}
REACTIONS: Mapping[Request, Mapping[int, Reaction]] = {
    # InitProducerId aborts an open transaction itself: its caller has none to abort.
    Request.INIT_PRODUCER_ID: _MOVED | {_E.TRANSACTION_ABORTABLE: Reaction.RETRY},
    Request.ADD_PARTITIONS: _MOVED
    | _ABORTABLE
    | {
        _E.TOPIC_AUTHORIZATION_FAILED: Reaction.ABORTABLE,
        _E.OPERATION_NOT_ATTEMPTED: Reaction.ABORTABLE,
        _E.INVALID_TOPIC_EXCEPTION: Reaction.ABORTABLE,
    },
    Request.ADD_OFFSETS: _MOVED
    | _ABORTABLE
    | {
        _E.GROUP_AUTHORIZATION_FAILED: Reaction.ABORTABLE,
        _E.INVALID_GROUP_ID: Reaction.ABORTABLE,
    },
    Request.END_TRANSACTION: _MOVED | _ABORTABLE | {_E.UNKNOWN_PRODUCER_ID: Reaction.ABORTABLE},
    Request.COMMIT_OFFSETS: _MOVED
    | _ABORTABLE
    | {
        _E.GROUP_AUTHORIZATION_FAILED: Reaction.ABORTABLE,
        _E.TOPIC_AUTHORIZATION_FAILED: Reaction.ABORTABLE,
        _E.INVALID_GROUP_ID: Reaction.ABORTABLE,
        _E.OFFSET_METADATA_TOO_LARGE: Reaction.ABORTABLE,
        _E.INVALID_COMMIT_OFFSET_SIZE: Reaction.ABORTABLE,
        _E.UNKNOWN_MEMBER_ID: Reaction.ABORTABLE,  # the group has removed the member
        _E.ILLEGAL_GENERATION: Reaction.ABORTABLE,
        _E.GROUP_ID_NOT_FOUND: Reaction.ABORTABLE,  # the same, in version 6
        _E.STALE_MEMBER_EPOCH: Reaction.ABORTABLE,
        _E.FENCED_INSTANCE_ID: Reaction.ABORTABLE,
        _E.REBALANCE_IN_PROGRESS: Reaction.ABORTABLE,
    },
}


def reaction_to(request: Request, code: int) -> Reaction:
    """Return the producer's reaction to an error code. The code 0 means success."""
    unnamed = Reaction.RETRY if error_for(code).retriable else Reaction.FATAL
    return REACTIONS[request].get(code, unnamed)


class Fate(Enum):
    """The fate of a batch after its answer, such as success, a retry or failure."""

    DONE = auto()
    RETRY = auto()
    SPLIT = auto()  # too large as a whole
    FAIL = auto()  # this batch cannot be written; others may be
    # not written: the broker has forgotten the producer id, or numbers are missing
    NEW_ID = auto()
    FATAL = auto()  # another producer took its place


_FATAL_FOR_ALL = frozenset(
    {
        _E.PRODUCER_FENCED,
        _E.CLUSTER_AUTHORIZATION_FAILED,
        _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        _E.INVALID_PRODUCER_ID_MAPPING,
        _E.UNSUPPORTED_VERSION,
    }
)


def fate_after(
    code: int,
    *,
    is_retriable: bool,
    is_oldest_in_flight: bool,
    is_transactional: bool = False,
    is_doubtful: bool = False,
    record_count: int = 1,
) -> Fate:
    """Return the fate of a batch, given the error code of its answer.

    is_oldest_in_flight: no batch of the partition with lower sequence numbers is undecided. A gap
    is expected while an earlier batch has yet to be sent again, and means a loss otherwise.
    is_doubtful: an earlier answer was lost, so the batch may have been written. A broker remembers
    only the last five batches of a producer (Kafka's broker one after a restart), so an unknown
    batch may have been written, and under new numbers it would be written twice. In a transaction
    FAIL and NEW_ID mean that the transaction must be aborted.
    """
    if code in (_E.NONE, _E.DUPLICATE_SEQUENCE_NUMBER):
        return Fate.DONE  # an earlier attempt has written it
    if code == _E.OUT_OF_ORDER_SEQUENCE_NUMBER and not is_oldest_in_flight:
        return Fate.RETRY
    if code in (_E.OUT_OF_ORDER_SEQUENCE_NUMBER, _E.UNKNOWN_PRODUCER_ID):
        return Fate.FAIL if is_doubtful else Fate.NEW_ID
    if code == _E.INVALID_PRODUCER_EPOCH:
        # In a transaction its end shows whether the producer was fenced or only timed out.
        return Fate.NEW_ID if is_transactional else Fate.FATAL
    if code in _FATAL_FOR_ALL:
        return Fate.FATAL
    if code in (_E.MESSAGE_TOO_LARGE, _E.RECORD_LIST_TOO_LARGE) and record_count > 1:
        return Fate.SPLIT
    return Fate.RETRY if is_retriable else Fate.FAIL
