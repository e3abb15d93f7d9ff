"""The answers of a partition to a producer or a coordinator that wants to append."""

from typing import NamedTuple

from ...wire.errors import InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced
from .entry import NO_OFFSET, ProducerEntry


class Duplicate(NamedTuple):
    """The batch is in the log already; offsets are inclusive, `timestamp` is its largest.

    It must be answered like the first one: acks=all waits until last_offset is committed.
    """

    base_offset: int
    last_offset: int
    timestamp: int


class Accepted(NamedTuple):
    """The batch may be appended."""


class MarkerAlreadyWritten(NamedTuple):
    """A retry of a marker (KIP-1228): append nothing, answer NONE once `offset` is committed.

    `offset` is the first marker's; None when it was written before this replica last loaded its
    state: then wait for the log end offset.
    """

    offset: int | None


ACCEPTED = Accepted()


def judge_marker(
    entry: ProducerEntry, producer_epoch: int, coordinator_epoch: int, transaction_version: int
) -> MarkerAlreadyWritten | Accepted:
    """Judge whether an end-of-transaction marker of a known producer may be appended.

    From transaction version 2 on each marker bears a higher epoch than its data, so an equal
    one is either the retry of the marker written last or a marker that the producer's next
    transaction has overtaken (KIP-890, KIP-1228). Before, equal epochs are the rule, and a
    retry is written once more, as Kafka does.
    Raises InvalidProducerEpoch or TransactionCoordinatorFenced.
    """
    repeated = transaction_version >= 2 and producer_epoch == entry.epoch
    if producer_epoch < entry.epoch or (repeated and entry.transaction_first_offset != NO_OFFSET):
        raise InvalidProducerEpoch(
            f"Epoch of producer {entry.producer_id} in a transaction marker is {producer_epoch}, "
            f"the last seen epoch is {entry.epoch}"
        )
    if coordinator_epoch < entry.coordinator_epoch:
        raise TransactionCoordinatorFenced(
            f"Coordinator epoch {coordinator_epoch} for producer {entry.producer_id} is older "
            f"than {entry.coordinator_epoch}, which wrote before"
        )
    if repeated:
        offset = entry.last_marker_offset
        return MarkerAlreadyWritten(None if offset == NO_OFFSET else offset)
    return ACCEPTED


def check_marker_is_due(entry: ProducerEntry, prepare_index: int) -> None:
    """Raise InvalidTxnState for a marker of a transaction before the open one.

    Producers without KIP-890 keep their epoch, so only the coordinator's log tells the two apart:
    the end of the open one is decided behind the index at which it was ongoing. Why what is not
    known here (0) need not be: coordinator/transactions/messages.py.
    """
    if entry.transaction_first_offset != NO_OFFSET and 0 < prepare_index <= entry.ongoing_index:
        raise InvalidTxnState(
            f"The marker of producer {entry.producer_id} was decided at index {prepare_index}, but "
            f"the transaction open since offset {entry.transaction_first_offset} was ongoing at "
            f"index {entry.ongoing_index}: it belongs to an earlier one, which has ended here"
        )
