"""One producer in a partition, with its epoch, its last five batches, and its transaction."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import NamedTuple

from ...runtime.steps import Steps
from ...wire.record_batch import BatchHeader
from .snapshot import ProducerSnapshotEntry

WINDOW_BATCHES = 5  # max.in.flight.requests.per.connection of an idempotent producer (KAFKA-5494)
SEQUENCE_MAX = 2**31 - 1  # the next sequence is 0
NO_EPOCH = -1
NO_OFFSET = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
_DROP_AMONG = 1024
_HEADERS_A_STEP = 512


class Origin(Enum):
    """The origin of an append, which determines the checks."""

    CLIENT = "client"
    COORDINATOR = "coordinator"  # the group coordinator, whose batches have no sequences


class AppendedBatch(NamedTuple):
    """A batch in the log.

    Its last offset is `base_offset + last_offset_delta`, and its last sequence follows likewise.
    `is_aborted`: its transaction was aborted.
    """

    base_sequence: int
    last_offset_delta: int
    base_offset: int
    timestamp: int
    is_aborted: bool = False

    @property
    def last_offset(self) -> int:
        """Return the offset of the batch's last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Return the sequence of the batch's last record, or -1 for offset commits."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX


@dataclass(slots=True, eq=False)
class ProducerEntry:
    """The state of one producer id. -1 stands for "none".

    `next_sequence` is the only sequence with which its epoch may continue, or 0 without a batch.
    `last_timestamp` is that of the last batch or marker, and `last_seen_ms` is the wall-clock time
    of its arrival. `last_marker_offset` is known only for markers since the last load.
    `ongoing_index` is an index of the coordinator's Raft log at which the open transaction was
    ongoing. It is known (not 0) only if the transaction opened while this replica led.
    """

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = NO_TIMESTAMP
    last_seen_ms: int = 0
    transaction_first_offset: int = NO_OFFSET
    last_marker_offset: int = NO_OFFSET
    ongoing_index: int = 0
    batches: list[AppendedBatch] = field(default_factory=list[AppendedBatch])  # the newest is last
    next_sequence: int = 0

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, -1 without batches in this epoch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        """The offset of the last record, -1 without batches in this epoch."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def last_data_offset_below(self, offset: int) -> int:
        """Return the last record's offset of the newest batch that begins below `offset`.

        Only the last five batches are examined. If all of them begin at or above `offset`, the
        result is `last_data_offset`.
        """
        for batch in reversed(self.batches):
            if batch.base_offset < offset:
                return batch.last_offset
        return self.last_data_offset

    def find(self, base_sequence: int, last_offset_delta: int) -> AppendedBatch | None:
        """Return the newest batch with exactly these sequences among the last five, or None.

        A leader that has dropped an idle producer accepts its earlier sequences again.
        """
        for batch in reversed(self.batches):
            if batch[0] == base_sequence and batch[1] == last_offset_delta:
                return batch
        return None

    def append(self, batch: AppendedBatch) -> None:
        """Add a batch to the last five batches. The oldest of six is dropped."""
        batches = self.batches
        batches.append(batch)
        if len(batches) > WINDOW_BATCHES:
            del batches[0]
        base_sequence, last_offset_delta, _, timestamp, _ = batch
        self.last_timestamp = timestamp
        self.next_sequence = (
            0
            if base_sequence == NO_SEQUENCE
            else (base_sequence + last_offset_delta + 1) & SEQUENCE_MAX
        )

    def abort(self, first_offset: int, last_offset: int) -> None:
        """Mark the batches of a transaction with these offsets as aborted."""
        self.batches[:] = [
            batch._replace(is_aborted=True)
            if first_offset <= batch.base_offset <= last_offset
            else batch
            for batch in self.batches
        ]

    def aborted_batch_with(self, sequence: int) -> AppendedBatch | None:
        """Return the aborted batch with this sequence among the last five, or None."""
        for batch in self.batches:
            if batch.is_aborted and (
                (sequence - batch.base_sequence) & SEQUENCE_MAX <= batch.last_offset_delta
            ):
                return batch
        return None

    def clear_window(self) -> None:
        """Remove the last five batches, because a new epoch begins with sequence 0."""
        self.batches.clear()
        self.next_sequence = 0

    def is_idle(self, now_ms: int, expiration_ms: int) -> bool:
        """Return whether the producer has been idle for this long, without a transaction."""
        return (
            self.transaction_first_offset == NO_OFFSET
            and now_ms - self.last_seen_ms >= expiration_ms
        )

    def newest_offset(self) -> int:
        """Return the highest known offset of this producer in the log."""
        return max(self.last_data_offset, self.last_marker_offset)

    def to_snapshot(self) -> ProducerSnapshotEntry:
        """Return the fields of the entry that a snapshot stores."""
        last = self.batches[-1] if self.batches else None
        return ProducerSnapshotEntry(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            last_sequence=last.last_sequence if last else NO_SEQUENCE,
            last_offset=last.last_offset if last else NO_OFFSET,
            offset_delta=last.last_offset_delta if last else 0,
            timestamp=self.last_timestamp,
            coordinator_epoch=self.coordinator_epoch,
            current_transaction_first_offset=self.transaction_first_offset,
        )

    @classmethod
    def from_snapshot(cls, snapshot: ProducerSnapshotEntry, now_ms: int) -> "ProducerEntry":
        """Return the producer of a snapshot, with a window of one batch, seen at `now_ms`."""
        entry = cls(
            snapshot.producer_id,
            snapshot.producer_epoch,
            snapshot.coordinator_epoch,
            last_seen_ms=now_ms,
            transaction_first_offset=snapshot.current_transaction_first_offset,
        )
        if snapshot.last_offset >= 0:
            last_sequence, delta = snapshot.last_sequence, snapshot.offset_delta
            has_sequence = last_sequence != NO_SEQUENCE
            base_sequence = (last_sequence - delta) & SEQUENCE_MAX if has_sequence else NO_SEQUENCE
            base_offset = snapshot.last_offset - delta
            entry.append(AppendedBatch(base_sequence, delta, base_offset, snapshot.timestamp))
        entry.last_timestamp = snapshot.timestamp
        return entry


def drop_longest_idle(entries: dict[int, ProducerEntry]) -> None:
    """Drop a sixteenth of the first `_DROP_AMONG` entries, except those with a transaction.

    The entries with the lowest newest offsets are dropped. A check of all producers would take too
    long for an append. The entries that are kept move to the end of the order, and the next call
    checks others.
    """
    some = [entries.pop(producer_id) for producer_id in list(islice(entries, _DROP_AMONG))]
    idle = [entry for entry in some if entry.transaction_first_offset == NO_OFFSET]
    idle.sort(key=ProducerEntry.newest_offset)
    dropped = {entry.producer_id for entry in idle[: len(some) // 16 + 1]}
    entries.update((e.producer_id, e) for e in some if e.producer_id not in dropped)


def refilling_windows(
    entries: Mapping[int, ProducerEntry], headers: Iterable[tuple[int, BatchHeader]]
) -> Steps[None]:
    """Complete producers' windows of five batches from the batches before a snapshot.

    `headers` are (base offset, header) in rising order. Batches that are already in the window, and
    batches of another epoch, are skipped.
    """
    older: dict[int, list[AppendedBatch]] = {}
    for count, (base_offset, header) in enumerate(headers, 1):
        if count % _HEADERS_A_STEP == 0:
            yield
        entry = entries.get(header.producer_id)
        if (
            entry is None
            or not entry.batches
            or header.producer_epoch != entry.epoch
            or header.base_sequence == NO_SEQUENCE
            or base_offset >= entry.batches[0].base_offset
        ):
            continue
        batches = older.setdefault(header.producer_id, [])
        batches.append(
            AppendedBatch(
                header.base_sequence, header.last_offset_delta, base_offset, header.max_timestamp
            )
        )
        del batches[:-WINDOW_BATCHES]
    for count, (producer_id, batches) in enumerate(older.items(), 1):
        if count % _HEADERS_A_STEP == 0:
            yield
        entry = entries[producer_id]
        entry.batches[:0] = batches
        del entry.batches[:-WINDOW_BATCHES]
