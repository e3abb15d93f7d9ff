"""The rewriting of a batch when its log is compacted, as a pure function of bytes.

A record is removed when a later record has its key, when its transaction was aborted, when it has
no key, or when it is a tombstone after its delete horizon. Offsets never change, so a batch that
loses records keeps its offset range. A batch without records is removed, with these exceptions:

- the last batch of each active producer stays without records, because its header has the last
  sequence of the producer, and the epoch that fences older epochs;
- the last batch of the compacted range stays, so that the log keeps its end;
- a marker stays while records may need it, and the last marker of an active producer stays.

Readers must see tombstones and markers for delete.retention.ms. Therefore the first compaction that
could remove such a batch writes the delete horizon `now + delete.retention.ms` into its header,
instead of the base timestamp (KIP-534). A compaction after that time removes the marker, or the
tombstones of the batch. By then the records that a tombstone removes are gone permanently, even if
a crash undoes a part of a compaction. The reason is that segments are replaced from the oldest on,
and that a tombstone follows the records that it removes.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...wire.record_batch import BatchHeader, Buffer
from ...wire.records import Record, decode_batch, encode_batch, encode_empty_batch
from ..segments.advanced_clock import AdvancedSince, never_advanced
from ..segments.transaction_index import AbortedTransaction
from .transactions import TransactionWalk

KEYS_MAX = 200_000  # take about 40 MB
_DIGEST_BYTES = 16


class ActiveProducer(NamedTuple):
    """A producer whose last batch and last marker must stay in the log.

    An offset is -1 if missing.
    """

    epoch: int
    last_data_offset: int
    last_marker_offset: int


class KeyMap:
    """The last offset of each key in a range of the log, in limited memory.

    Keys are stored as digests of 16 bytes, of a function without known collisions. `end_offset` is
    the exclusive end of the range, and later records are not touched.
    """

    __slots__ = ("_offsets", "end_offset", "keys_max")

    def __init__(self, start_offset: int, keys_max: int = KEYS_MAX) -> None:
        self._offsets: dict[bytes, int] = {}
        self.end_offset = start_offset
        self.keys_max = keys_max

    def __len__(self) -> int:
        return len(self._offsets)

    def add_batch(self, header: BatchHeader, batch: Buffer) -> bool:
        """Add the keys of a batch, all or none. Return False if the memory does not suffice.

        An empty map accepts every batch, so that each compaction makes progress.
        """
        start_offset = self.end_offset
        digests = {
            _digest(record.key): record.offset
            for record in decode_batch(batch)
            if record.key is not None and record.offset >= start_offset
        }
        offsets = self._offsets
        added = sum(digest not in offsets for digest in digests)
        if offsets and added and len(offsets) + added > self.keys_max:
            return False
        offsets.update(digests)
        self.end_offset = header.next_offset
        return True

    def skip_to(self, offset: int) -> None:
        """Raise `end_offset` to `offset`. Keys of the skipped records are not added."""
        self.end_offset = max(self.end_offset, offset)

    def is_superseded(self, key: bytes, offset: int) -> bool:
        """Return whether a later record of the range has the same key."""
        return self._offsets.get(_digest(key), -1) > offset


@dataclass(slots=True, kw_only=True, eq=False)
class BatchCleaner:
    """A cleaner that decides about each batch of one compaction, in the order of offsets.

    `end_offset` is the end of the compacted range. `now_ms` is wall-clock time. Aborted
    transactions are added to `walk` before their records are reached. `kept_aborts` collects the
    transaction index entries of the rewritten segment, and the caller empties it after each
    segment.
    """

    keys: KeyMap
    producers: Mapping[int, ActiveProducer]
    end_offset: int
    delete_retention_ms: int
    now_ms: int
    advanced_since_ms: AdvancedSince = never_advanced
    walk: TransactionWalk = field(default_factory=TransactionWalk)
    kept_aborts: list[AbortedTransaction] = field(default_factory=list[AbortedTransaction])

    def clean(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """Return the batch that replaces this batch.

        The result is the same batch, a rewritten batch, or None if the batch is removed.
        """
        if header.is_control:
            return self._clean_marker(header, batch)
        is_dead = self.walk.is_aborted(header)
        if header.next_offset > self.keys.end_offset:
            return batch  # the keys that may supersede its records were not read
        if header.record_count == 0 or is_dead:
            kept: list[Record] = []
        else:
            records = decode_batch(batch)
            kept = [record for record in records if self._stays(header, record)]
            needs_horizon = not header.has_delete_horizon and any(r.value is None for r in kept)
            if len(kept) == len(records) and not needs_horizon:
                return batch
            if kept:
                horizon = self._horizon(header, is_needed=needs_horizon)
                return _rewrite(header, kept, horizon)
        if not self._is_needed_empty(header):
            return None
        return batch if header.record_count == 0 else encode_empty_batch(header)

    def _clean_marker(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        if header.record_count == 0:  # emptied by another cleaner, so it has no commit or abort
            return batch if header.next_offset == self.end_offset else None
        may_go, abort = self.walk.end(header, batch)
        if abort is not None:
            self.kept_aborts.append(abort)
        if not may_go:
            return batch
        if not header.has_delete_horizon:
            horizon = self._horizon(header, is_needed=True)
            return _rewrite(header, decode_batch(batch), horizon)
        is_over = self._is_over(header.base_timestamp)
        return None if is_over and not self._is_needed_marker(header) else batch

    def _stays(self, header: BatchHeader, record: Record) -> bool:
        if record.key is None or self.keys.is_superseded(record.key, record.offset):
            return False
        if record.value is not None or not header.has_delete_horizon:
            return True
        return not self._is_over(header.base_timestamp)

    def _is_over(self, horizon_ms: int) -> bool:
        """Return whether a delete horizon has passed."""
        since_ms = horizon_ms - self.delete_retention_ms
        return self.now_ms + self.advanced_since_ms(since_ms) >= horizon_ms

    def _horizon(self, header: BatchHeader, *, is_needed: bool) -> int | None:
        if header.has_delete_horizon:
            return header.base_timestamp
        return self.now_ms + self.delete_retention_ms if is_needed else None

    def _is_needed_empty(self, header: BatchHeader) -> bool:
        producer = self.producers.get(header.producer_id)
        return header.next_offset == self.end_offset or (
            producer is not None and producer.last_data_offset == header.last_offset
        )

    def _is_needed_marker(self, header: BatchHeader) -> bool:
        if header.next_offset == self.end_offset:
            return True
        producer = self.producers.get(header.producer_id)
        return producer is not None and (
            producer.last_marker_offset == header.base_offset
            or (producer.last_data_offset < 0 and producer.epoch == header.producer_epoch)
        )


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()


def _rewrite(header: BatchHeader, records: list[Record], horizon_ms: int | None) -> bytes:
    """Return the batch with only these records, and the same offsets, sequences and timestamps."""
    return encode_batch(
        records,
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        compression=header.compression,
        transactional=header.is_transactional,
        control=header.is_control,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        timestamp_type=int(header.is_log_append_time),
        delete_horizon_ms=horizon_ms,
        last_offset_delta=header.last_offset_delta,
    )
