"""The rules of Kafka's log (KIP-98, 890) for one partition's batches, on any broker.

A `RawLog` gets batch headers in the order of the log and reports problems of each immediately. It
knows only the log: no client, no clock. Rules:
  * Offsets ascend. Leader epochs do not decrease.
  * A producer id's epoch does not decrease, in data and in markers.
  * Within an epoch sequences are consecutive (2^31-1 is followed by 0), and a new epoch begins at
    0. In a log with a deleted start, an epoch that may have begun there may continue anywhere.
  * One transaction of a producer is open at a time, and a marker ends it. The coordinator epoch of
    a producer's markers does not decrease. A marker that ends nothing is legal (a repeated one).
A transaction is identified by (producer id, epoch of its marker) when the marker's epoch is above
the data's: transactions V2, and V1 after a fence.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ....wire.control_record import decode_marker
from ....wire.record_batch import SEQUENCE_MAX, TRANSACTIONAL_BIT, BatchHeader, Buffer
from .. import log_anomalies as log
from ..history.schema import NONE, Marker
from ..log_anomalies import LogAnomaly

ANOMALIES = (
    log.OFFSET_DISORDER,
    log.LEADER_EPOCH_FELL,
    log.ZOMBIE_APPEND,
    log.SEQUENCE_GAP,
    log.SEQUENCE_REPEATED,
    log.PLAIN_IN_TRANSACTION,
    log.COORDINATOR_EPOCH_FELL,
)


class LoggedBatch(NamedTuple):
    """The fields of a batch header that the history's table `batches` has."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    max_timestamp_ms: int
    marker: int
    coordinator_epoch: int

    @classmethod
    def of(cls, header: BatchHeader, data: Buffer) -> "LoggedBatch":
        marker, coordinator_epoch = decode_marker(data) if header.is_control else (NONE, NONE)
        return cls(
            header.base_offset,
            header.last_offset,
            header.partition_leader_epoch,
            header.attributes,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            header.max_timestamp,
            int(marker),
            coordinator_epoch,
        )


class Problem(NamedTuple):
    """A violation of a rule, with the batch that shows it, and a sentence."""

    anomaly: LogAnomaly
    batch: LoggedBatch
    sentence: str


class Ended(NamedTuple):
    """A transaction that a marker ended in this partition."""

    producer_id: int
    data_epoch: int
    marker_epoch: int
    first_offset: int
    last_offset: int  # the marker's
    marker: int


@dataclass(slots=True)
class LoggedProducer:
    """The state of a producer id after the batches so far. Unknown values are -1."""

    epoch: int
    is_cut: bool  # the epoch may have begun before the remaining log
    last_sequence: int = -1  # -1: no data of this epoch yet
    first_offset: int = -1  # of the open transaction
    data_epoch: int = -1
    since_ms: int = -1
    coordinator_epoch: int = -1
    last_offset: int = -1  # of this epoch's newest data
    offset_delta: int = 0
    timestamp_ms: int = -1  # of the newest batch
    has_sequences: bool = True  # a coordinator's offset commits have none


class Open(NamedTuple):
    producer_id: int
    producer_epoch: int
    first_offset: int
    since_ms: int


@dataclass(slots=True)
class RawLog:
    """Checks the log of one partition batch by batch.

    is_whole: the log begins at offset 0, with the begin of every producer.
    """

    is_whole: bool = True
    is_compacted: bool = False
    ended: list[Ended] = field(default_factory=list[Ended])
    next_offset: int = -1
    leader_epoch: int = -1
    producers: dict[int, LoggedProducer] = field(default_factory=dict[int, LoggedProducer])

    def feed(self, batch: LoggedBatch) -> Iterator[Problem]:
        """Check the next batch of the log, and yield its problems."""
        if batch.base_offset < self.next_offset:
            text = f"offset {batch.base_offset} stands after {self.next_offset - 1}"
            yield Problem(log.OFFSET_DISORDER, batch, text)
        self.next_offset = max(self.next_offset, batch.last_offset + 1)
        if batch.leader_epoch < self.leader_epoch:
            yield _problem(log.LEADER_EPOCH_FELL, batch, batch.leader_epoch, self.leader_epoch)
        self.leader_epoch = max(self.leader_epoch, batch.leader_epoch)
        if batch.producer_id < 0:
            return
        first = LoggedProducer(batch.producer_epoch, is_cut=not self.is_whole)
        known = self.producers.setdefault(batch.producer_id, first)
        if batch.producer_epoch < known.epoch:
            epochs = batch.producer_epoch, known.epoch
            yield _problem(log.ZOMBIE_APPEND, batch, batch.producer_id, *epochs)
            return
        known.timestamp_ms = batch.max_timestamp_ms
        if batch.marker == Marker.NONE:
            yield from self._data(batch, known)
        else:
            yield from self._marker(batch, known)

    def _data(self, batch: LoggedBatch, known: LoggedProducer) -> Iterator[Problem]:
        _raise_epoch(batch, known)
        expected = 0 if known.last_sequence < 0 else (known.last_sequence + 1) & SEQUENCE_MAX
        # a coordinator's offset commits belong to a producer, but have no sequence
        may_go_on = known.is_cut and known.last_sequence < 0
        is_free = may_go_on or self.is_compacted or batch.base_sequence < 0
        ahead = (batch.base_sequence - expected) & SEQUENCE_MAX
        if ahead and not is_free:
            is_repeated = ahead > SEQUENCE_MAX // 2 and known.last_sequence >= 0
            anomaly = log.SEQUENCE_REPEATED if is_repeated else log.SEQUENCE_GAP
            producer = batch.producer_id, batch.producer_epoch
            yield _problem(anomaly, batch, *producer, batch.base_sequence, expected)
        if batch.base_sequence >= 0:
            known.last_sequence = batch.last_sequence
        else:
            known.has_sequences = False
        known.last_offset = batch.last_offset
        known.offset_delta = batch.last_offset - batch.base_offset
        if batch.attributes & TRANSACTIONAL_BIT:
            if known.first_offset < 0:
                known.first_offset, known.since_ms = batch.base_offset, batch.max_timestamp_ms
            known.data_epoch = batch.producer_epoch
        elif known.first_offset >= 0:
            yield _problem(log.PLAIN_IN_TRANSACTION, batch, batch.producer_id)

    def _marker(self, batch: LoggedBatch, known: LoggedProducer) -> Iterator[Problem]:
        if 0 <= batch.coordinator_epoch < known.coordinator_epoch:
            epochs = batch.coordinator_epoch, known.coordinator_epoch
            yield _problem(log.COORDINATOR_EPOCH_FELL, batch, batch.producer_id, *epochs)
        known.coordinator_epoch = max(known.coordinator_epoch, batch.coordinator_epoch)
        if known.first_offset >= 0:
            self.ended.append(
                Ended(
                    batch.producer_id,
                    known.data_epoch,
                    batch.producer_epoch,
                    known.first_offset,
                    batch.base_offset,
                    batch.marker,
                )
            )
            known.first_offset = known.since_ms = -1
        _raise_epoch(batch, known)

    def open_transactions(self) -> list[Open]:
        """Return the transactions without a marker, oldest first. The first one bounds the LSO."""
        found = [
            Open(producer_id, p.data_epoch, p.first_offset, p.since_ms)
            for producer_id, p in self.producers.items()
            if p.first_offset >= 0
        ]
        return sorted(found, key=lambda transaction: transaction.first_offset)


def _problem(anomaly: LogAnomaly, batch: LoggedBatch, *values: int) -> Problem:
    return Problem(anomaly, batch, anomaly.sentence % values)


def _raise_epoch(batch: LoggedBatch, known: LoggedProducer) -> None:
    if batch.producer_epoch > known.epoch:
        known.epoch, known.last_sequence, known.is_cut = batch.producer_epoch, -1, False
        known.last_offset, known.offset_delta = -1, 0
