"""The results of the check of an append by a producer or a coordinator."""

from typing import NamedTuple

from ...wire.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    TransactionCoordinatorFenced,
    UnknownProducerId,
)
from .entry import NO_OFFSET, ProducerEntry


class Duplicate(NamedTuple):
    """The result of a check that has found the batch in the log. Both offsets are inclusive.

    The duplicate must be answered like its first copy, so acks=all waits until last_offset is
    committed.

    `timestamp` is the batch's largest timestamp.
    """

    base_offset: int
    last_offset: int
    timestamp: int


class Accepted(NamedTuple):
    """The result of a check that allows the append."""


class MarkerAlreadyWritten(NamedTuple):
    """A repeated marker (KIP-1228), which is not appended, and is answered with NONE.

    The answer is sent once `offset`, that of the first marker, is committed. `offset` is None if
    the marker was written before this replica last loaded its state. Then the answer waits for the
    log end offset.
    """

    offset: int | None


ACCEPTED = Accepted()


def check_sequence_is_unused(entry: ProducerEntry, first_sequence: int) -> None:
    """Raise UnknownProducerId if an aborted batch among the last five has this sequence.

    librdkafka gives the sequences of unanswered batches that it drops at an abort to its next
    transaction. Apache Kafka takes a new batch of the same size for a duplicate, and acknowledges
    it without storing it. Any other size gets OUT_OF_ORDER_SEQUENCE_NUMBER, after which librdkafka
    cannot continue. After UNKNOWN_PRODUCER_ID clients abort, and continue with a new epoch
    (KIP-360).
    """
    batch = entry.aborted_batch_with(first_sequence)
    if batch is not None:
        raise UnknownProducerId(
            f"Sequence number {first_sequence} of producer {entry.producer_id} was used at offset "
            f"{batch.base_offset}, in an aborted transaction"
        )


def judge_marker(
    entry: ProducerEntry, producer_epoch: int, coordinator_epoch: int, transaction_version: int
) -> MarkerAlreadyWritten | Accepted:
    """Check whether an end-of-transaction marker of a known producer may be appended.

    From transaction version 2 on each marker has a higher epoch than its data. Therefore a marker
    with an equal epoch is either a repetition of the last marker, or a marker that the producer's
    next transaction has overtaken (KIP-890, KIP-1228). In older versions equal epochs are normal,
    and a repetition is written again, as in Kafka. Raises InvalidProducerEpoch or
    TransactionCoordinatorFenced.
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
    """Raise InvalidTxnState for a marker of a transaction before the open transaction.

    Producers without KIP-890 keep their epoch, so only the coordinator's log distinguishes the two
    transactions. The end of the open transaction was decided after the index at which it was
    ongoing. An unknown index (0) needs no check (see coordinator/transactions/messages.py).
    """
    if entry.transaction_first_offset != NO_OFFSET and 0 < prepare_index <= entry.ongoing_index:
        raise InvalidTxnState(
            f"The marker of producer {entry.producer_id} was decided at index {prepare_index}, but "
            f"the transaction open since offset {entry.transaction_first_offset} was ongoing at "
            f"index {entry.ongoing_index}: it belongs to an earlier one, which has ended here"
        )
