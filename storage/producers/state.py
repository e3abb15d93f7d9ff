"""The producer state of a partition, which detects duplicates, gaps and fenced producers.

A producer numbers its records within an epoch. The leader stores its last five batches
(max.in.flight), so that a repeated batch is answered with its first offset and a gap is refused. A
higher epoch fences the lower ones. A transaction is open from its first batch in this partition
until its marker. read_committed consumers stop before the first open transaction, and before the
first one without a replicated marker.

The table is derived from the log. `check` and `check_marker` decide about an append by a client or
a coordinator, and change nothing. `append` and `append_marker` apply batches that are in the log,
on leaders, on followers and in recovery, and refuse nothing. A marker is applied in three steps:

    completed = table.append_marker(...)                 # after its bytes are written
    transaction index.append(...)                        # if it aborts, with
                                                         # completed.last_stable_offset
    table.complete_transaction(completed)                # from here on readers may pass

Deliberate differences from Kafka: windows are filled to five batches after a restart. A producer is
idle if this broker has appended nothing from it for producer.id.expiration.ms of its own clock
(Kafka uses the client's timestamps). A sequence of an aborted batch is refused
(`check_sequence_is_unused`). The number of producers is limited: the longest idle ones are
dropped first, except those with an open transaction.
"""

from collections.abc import Iterable, Iterator, Mapping
from heapq import merge

from ...runtime.c_calls import new_tuple
from ...runtime.steps import Steps
from ...wire.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequenceNumber
from ...wire.record_batch import BatchHeader
from ..segments.advanced_clock import AdvancedSince, never_advanced
from .entry import (
    NO_EPOCH,
    NO_OFFSET,
    AppendedBatch,
    Origin,
    ProducerEntry,
    drop_longest_idle,
    refilling_windows,
)
from .open_transactions import CompletedTransaction, OpenTransactions
from .snapshot import ProducerSnapshotEntry, encoding
from .verdicts import (
    ACCEPTED,
    Accepted,
    Duplicate,
    MarkerAlreadyWritten,
    check_marker_is_due,
    check_sequence_is_unused,
    judge_marker,
)
from .verification_guard import VerificationGuards

_IDS_A_STEP = 2048


class SnapshotCut:
    """The producers of a partition at one offset, for a snapshot while the log is in use.

    A snapshot of many producers is encoded in steps, between which batches are appended. Therefore
    `keep` saves each entry once before it changes. A copy of all entries at the beginning would
    take as long as their encoding.
    """

    __slots__ = ("_ids", "_kept", "_unchanged", "end_offset")

    def __init__(self, entries: Mapping[int, ProducerEntry], end_offset: int) -> None:
        self.end_offset = end_offset
        self._ids = list(entries)
        self._unchanged = dict(entries)
        self._kept: dict[int, ProducerSnapshotEntry] = {}

    def keep(self, producer_id: int) -> None:
        """Save an entry as it is, before it changes for the first time."""
        entry = self._unchanged.pop(producer_id, None)
        if entry is not None:
            self._kept[producer_id] = entry.to_snapshot()

    def encode(self) -> Steps[bytes]:
        """Encode the bytes of the snapshot."""
        runs: list[list[int]] = []
        for first in range(0, len(self._ids), _IDS_A_STEP):
            runs.append(sorted(self._ids[first : first + _IDS_A_STEP]))
            yield
        ordered = map(self._take, merge(*runs))
        return (yield from encoding(ordered, len(self._ids)))

    def _take(self, producer_id: int) -> ProducerSnapshotEntry:
        entry = self._unchanged.pop(producer_id, None)
        return self._kept.pop(producer_id) if entry is None else entry.to_snapshot()


PRODUCERS_MAX = 100_000
# Retries must be recognised, and librdkafka retries for five minutes (delivery.timeout.ms).
RETRIES_END_MS = 300_000
_TRANSACTIONAL, _ENTRIES_A_STEP = 0x10, 256


class ProducerStateTable:
    """The producers of one partition, for one thread.

    `end_offset` is the exclusive end of the applied log. `now_ms` arguments are wall-clock time.
    """

    __slots__ = ("_entries", "_guards", "_transactions", "cut", "end_offset", "producers_max")

    def __init__(self, end_offset: int = 0, *, producers_max: int = PRODUCERS_MAX) -> None:
        self.end_offset = end_offset
        self.producers_max = producers_max
        self._entries: dict[int, ProducerEntry] = {}
        self.cut: SnapshotCut | None = None  # the snapshot being encoded
        self._transactions = OpenTransactions()
        self._guards = VerificationGuards(producers_max)

    # -- judging -----------------------------------------------------------------------------

    def check(
        self, header: BatchHeader, *, origin: Origin = Origin.CLIENT, guard: int | None = None
    ) -> Duplicate | Accepted:
        """Check a data batch with a producer id before it is appended on the leader.

        `guard` is the result of `begin_verification` for this request, if any. For an offset commit
        (origin COORDINATOR), which has no sequence, only the epoch, the guard and the open
        transaction are checked. Raises InvalidProducerEpoch (a zombie), UnknownProducerId (see
        `check_sequence_is_unused`), OutOfOrderSequenceNumber (a gap that would lose records, or a
        duplicate older than five batches), InvalidTxnState (no verified transaction, or a
        non-transactional batch during an open transaction). The order of the checks is part of the
        protocol: a fenced producer must learn that it is fenced, whatever else is wrong
        (KAFKA-19690).
        """
        producer_id = header.producer_id
        epoch = header.producer_epoch
        entry = self._entries.get(producer_id)
        is_transactional = header.attributes & _TRANSACTIONAL
        first_sequence = header.base_sequence
        is_client = origin is Origin.CLIENT
        known_epoch = NO_EPOCH if entry is None else entry.epoch
        open_since = NO_OFFSET if entry is None else entry.transaction_first_offset

        if epoch == known_epoch and entry is not None and is_client:
            expected = entry.next_sequence
            # A batch with the next sequence cannot be in the window.
            if first_sequence != expected:
                batch = entry.find(first_sequence, header.last_offset_delta)
                if batch is not None and not batch.is_aborted:
                    return Duplicate(batch.base_offset, batch.last_offset, batch.timestamp)
                check_sequence_is_unused(entry, first_sequence)
        elif epoch < known_epoch:
            raise InvalidProducerEpoch(
                f"Epoch of producer {producer_id} is {epoch}, which is smaller than the last seen "
                f"epoch {known_epoch}"
            )
        if is_transactional and (open_since == NO_OFFSET or epoch != known_epoch):
            self._guards.check_guard(producer_id, guard)
        if is_client:
            # The next sequence of a known epoch leaves no gap. A lower sequence of the guard may be
            # that of an aborted batch, which is never appended again.
            if self._guards and (
                entry is None or epoch != known_epoch or first_sequence != entry.next_sequence
            ):
                self._guards.check_sequence(
                    producer_id,
                    first_sequence,
                    begins_unknown_transaction=bool(is_transactional) and known_epoch == NO_EPOCH,
                )
            if epoch != known_epoch:
                if first_sequence != 0 and known_epoch != NO_EPOCH:
                    raise OutOfOrderSequenceNumber(
                        f"Producer {producer_id} begins epoch {epoch} with sequence "
                        f"{first_sequence} instead of 0 (epoch so far {known_epoch})"
                    )
            elif entry is not None and first_sequence != entry.next_sequence:
                raise OutOfOrderSequenceNumber(
                    f"Out of order sequence number for producer {producer_id}: {first_sequence} "
                    f"(incoming), {entry.last_sequence} (last in the log)"
                )
        if not is_transactional and open_since != NO_OFFSET:
            raise InvalidTxnState(
                f"Expected a transactional write from producer {producer_id}: it has a transaction "
                f"open since offset {open_since}"
            )
        return ACCEPTED

    def check_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        transaction_version: int = 0,
        prepare_index: int = 0,
    ) -> MarkerAlreadyWritten | Accepted:
        """Check an end-of-transaction marker before it is appended on the leader.

        `prepare_index`: the index in the coordinator's Raft log at which the end was decided, or 0
        if unknown. Raises InvalidProducerEpoch, TransactionCoordinatorFenced or InvalidTxnState,
        each of which refuses the marker for good. A repeated marker destroys the producer's
        verification guard, as the first marker does.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return ACCEPTED
        verdict = judge_marker(entry, producer_epoch, coordinator_epoch, transaction_version)
        check_marker_is_due(entry, prepare_index)
        if verdict is not ACCEPTED:
            self.drop_guard(producer_id)
        return verdict

    # -- verification guards -----------------------------------------------------------------

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        now_ms: int,
        supports_epoch_bump: bool = False,
    ) -> int | None:
        """Return a guard if the coordinator must verify this transactional batch first.

        Returns None if the transaction is known to be open here. The guard is passed to `check`
        after the coordinator's confirmation. Any data or marker of the producer in between destroys
        the guard, so a late confirmation opens no transaction (KIP-890). While the guard exists,
        the lowest sequence seen in the epoch must be appended first, since otherwise that sequence
        would be a gap forever. `supports_epoch_bump`: the request is of a TV2 client (Produce v12
        and later).
        """
        entry = self._entries.get(producer_id)
        if (
            entry is not None
            and entry.transaction_first_offset != NO_OFFSET
            and entry.epoch == producer_epoch
        ):
            return None
        return self._guards.begin(
            producer_id, producer_epoch, base_sequence, now_ms, supports_epoch_bump
        )

    def verified(self, producer_id: int, guard: int, ongoing_index: int) -> None:
        """Record that the coordinator confirmed the transaction of this guard.

        `ongoing_index`: an index of the coordinator's Raft log at which the transaction was
        ongoing, or 0 if the request added the partition.
        """
        verification = self._guards.get(producer_id)
        if verification is not None and verification.guard == guard:
            verification.ongoing_index = ongoing_index

    def drop_guard(self, producer_id: int) -> None:
        """Drop a producer's guard for a repeated marker, which is not appended."""
        self._guards.pop(producer_id, None)

    # -- taking in what was written ----------------------------------------------------------

    def append(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Apply a data batch (not a control batch) that was written at `base_offset`.

        A batch without a producer id only raises `end_offset`.
        """
        last_offset_delta = header.last_offset_delta
        last_offset = base_offset + last_offset_delta
        self.end_offset = last_offset + 1
        producer_id = header.producer_id
        if producer_id < 0:
            return
        if self.cut is not None:
            self.cut.keep(producer_id)
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._add(ProducerEntry(producer_id))
        verification = self._guards.pop(producer_id, None) if self._guards else None
        epoch = header.producer_epoch
        if epoch != entry.epoch:
            entry.epoch = epoch
            entry.batches.clear()
        batch = header.base_sequence, last_offset_delta, base_offset, header.max_timestamp, False
        entry.append(new_tuple(AppendedBatch, batch))
        entry.last_seen_ms = now_ms
        if header.attributes & _TRANSACTIONAL and entry.transaction_first_offset == NO_OFFSET:
            entry.transaction_first_offset = base_offset
            entry.ongoing_index = 0 if verification is None else verification.ongoing_index
            self._transactions.begin(producer_id, base_offset)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        is_aborted: bool,
        offset: int,
        timestamp: int,
        now_ms: int,
    ) -> CompletedTransaction | None:
        """Apply a marker that was written at `offset`.

        Returns the transaction that the marker ends, to be passed to `complete_transaction` (see
        the top of this file). Returns None if the producer had no transaction open here, so that
        the marker only fences.
        """
        self.end_offset = offset + 1
        self._guards.pop(producer_id, None)
        if self.cut is not None:
            self.cut.keep(producer_id)
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._add(ProducerEntry(producer_id))
        first_offset = entry.transaction_first_offset
        if producer_epoch != entry.epoch:
            entry.epoch = producer_epoch
            entry.clear_window()
        entry.coordinator_epoch = coordinator_epoch
        entry.transaction_first_offset = NO_OFFSET
        entry.last_timestamp = timestamp
        entry.last_marker_offset = offset
        entry.last_seen_ms = now_ms
        if first_offset == NO_OFFSET:
            return None
        if is_aborted:
            entry.abort(first_offset, offset)
        last_stable_offset = self._transactions.stable_offset_without(first_offset, offset)
        return CompletedTransaction(
            producer_id, first_offset, offset, is_aborted, last_stable_offset
        )

    def complete_transaction(self, completed: CompletedTransaction) -> None:
        """Mark a transaction as ended.

        The LSO passes the transaction once its marker is below the high watermark.
        """
        self._transactions.complete(completed)

    def skip_to(self, end_offset: int) -> None:
        """Raise `end_offset` beyond batches that concern no producer."""
        self.end_offset = max(self.end_offset, end_offset)

    # -- the last stable offset --------------------------------------------------------------

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Remove the ended transactions with markers below `high_watermark`."""
        if self._transactions.unreplicated:
            self._transactions.advance_high_watermark(high_watermark)

    @property
    def first_unstable_offset(self) -> int | None:
        """Return the first offset of the oldest transaction without a replicated marker, or None.

        A marker is replicated if it is below the high watermark.
        """
        return self._transactions.first_unstable_offset

    @property
    def first_ongoing_offset(self) -> int | None:
        """Return the first offset of the oldest transaction without a marker, or None."""
        return self._transactions.first_ongoing_offset

    def ongoing(self) -> list[tuple[int, int]]:
        """Return the transactions without a marker as rising (first offset, producer id)."""
        return self._transactions.ongoing()

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the LSO, the exclusive end of committed data.

        The caller must handle a log start offset above the LSO (DeleteRecords inside a
        transaction).
        """
        self.advance_high_watermark(high_watermark)
        first_unstable = self.first_unstable_offset
        return high_watermark if first_unstable is None else min(first_unstable, high_watermark)

    # -- limits ------------------------------------------------------------------------------

    def expiring(
        self,
        now_ms: int,
        expiration_ms: int,
        advanced_since_ms: AdvancedSince = never_advanced,
    ) -> Steps[int]:
        """Drop producers and guards that were idle for `expiration_ms`. Return how many producers.

        A producer with an open transaction stays. The next batch of a dropped producer is accepted
        with any sequence (KIP-360). Advances of the clock count only for a producer that has been
        idle for RETRIES_END_MS of real time. Before that it may retry its last batch, which would
        be appended twice if the producer were dropped.
        """
        forgotten = 0
        for count, producer_id in enumerate(list(self._entries), 1):
            entry = self._entries.get(producer_id)
            if entry is not None:
                aged_ms = now_ms
                if now_ms - entry.last_seen_ms >= RETRIES_END_MS:
                    aged_ms += advanced_since_ms(entry.last_seen_ms)
                if entry.is_idle(aged_ms, expiration_ms):
                    del self._entries[producer_id]
                    forgotten += 1
            if count % _ENTRIES_A_STEP == 0:
                yield
        self._guards.expire(now_ms, expiration_ms)
        return forgotten

    def _add(self, entry: ProducerEntry) -> ProducerEntry:
        if len(self._entries) >= self.producers_max:
            drop_longest_idle(self._entries)
        self._entries[entry.producer_id] = entry
        return entry

    # -- snapshots, truncation ---------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """Return the entry of a producer, or None. The caller must not change it."""
        return self._entries.get(producer_id)

    def entries(self) -> list[ProducerEntry]:
        """Return the entries of all producers by id. The caller must not change them."""
        return [self._entries[producer_id] for producer_id in sorted(self._entries)]

    def clear(self, end_offset: int) -> None:
        """Remove all state. The log from `end_offset` on is applied next."""
        self._entries.clear()
        self.cut = None
        self._transactions.clear()
        self._guards.clear()
        self.end_offset = end_offset

    def begin_snapshot(self) -> SnapshotCut:
        """Begin a snapshot of the present entries. It is stored in `cut` while it is valid."""
        cut = self.cut = SnapshotCut(self._entries, self.end_offset)
        return cut

    def snapshot_entries(self) -> list[ProducerSnapshotEntry]:
        """Return the entries of a snapshot at `end_offset`, by producer id."""
        return [entry.to_snapshot() for entry in self.entries()]

    def loading_entries(
        self, entries: Iterable[ProducerSnapshotEntry], end_offset: int, now_ms: int
    ) -> Steps[None]:
        """Replace all state by the entries of a snapshot at `end_offset`."""
        self.clear(end_offset)
        runs: list[list[tuple[int, int]]] = [[]]
        for count, entry in enumerate(entries, 1):
            self._entries[entry.producer_id] = ProducerEntry.from_snapshot(entry, now_ms)
            if entry.current_transaction_first_offset != NO_OFFSET:
                runs[-1].append((entry.current_transaction_first_offset, entry.producer_id))
            if count % _ENTRIES_A_STEP == 0:
                runs[-1].sort()
                runs.append([])
                yield
        runs[-1].sort()
        yield from self._transactions.loading(merge(*runs))

    def refilling_windows(self, headers: Iterable[tuple[int, BatchHeader]]) -> Steps[None]:
        """Complete producers' windows of five batches from the log before a loaded snapshot.

        `headers` are rising (base offset, header), for example of the last two segments.
        """
        yield from refilling_windows(self._entries, headers)

    def mark_aborted(self, producer_id: int, first_offset: int, last_offset: int) -> None:
        """Mark the batches of a transaction in its producer's window as aborted."""
        entry = self._entries.get(producer_id)
        if entry is not None:
            entry.abort(first_offset, last_offset)
