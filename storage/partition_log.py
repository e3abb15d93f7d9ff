"""One partition's log on one replica: its offsets, and who may change it how.

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset

Readers get what lies below the high watermark (or below the last stable offset), followers
everything. The leader judges a batch, stamps offset and epoch into its bytes, and writes them;
a follower takes batches as they are stamped. An append judges everything before it writes.
"""

from pathlib import Path
from typing import Any, NamedTuple

from ..wire.control_record import decode_marker
from ..wire.errors import (
    CorruptMessage,
    KafkaStorageError,
    OffsetOutOfRange,
    RecordListTooLarge,
)
from ..wire.fault_point import FaultPoint, no_fault_point
from ..wire.record_batch import (
    CONTROL_BIT,
    BatchHeader,
    Buffer,
    decode_header,
    restamp,
    restamp_append_time,
)
from ..wire.steps import Steps, run_to_end
from .batch_checks import UnexpectedAppendOffset, check_client_batch, replicated_batches
from .disk_guard import DiskGuard
from .log_config import LogConfig
from .log_read import (
    LogRead,
    TimedBatch,
    batch_not_older,
    read_batches,
)
from .log_recovery import load_log
from .producers.entry import Origin
from .producers.verdicts import Duplicate, MarkerAlreadyWritten
from .segments.retention import segments_past_retention
from .transactional_log import TransactionalLog

__all__ = [
    "AppendInfo",
    "LogRead",
    "Origin",
    "PartitionLog",
    "TimedBatch",
    "UnexpectedAppendOffset",
]


class AppendInfo(NamedTuple):
    """Where a batch went, or where it already was.

    Both offsets are inclusive. `log_append_time_ms` is -1 unless the broker's clock stamped the
    batch; for a duplicate it is the timestamp of the batch in the log, as Kafka answers it.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    is_duplicate: bool


class PartitionLog(TransactionalLog):
    """A log with its limits. See LocalLog for threads, time, and failure."""

    topic: str
    partition: int
    topic_id: bytes
    high_watermark: int

    @classmethod
    def open(cls, directory: Path, **options: Any) -> "PartitionLog":
        """`opening`, at once."""
        return run_to_end(cls.opening(directory, **options))

    @classmethod
    def opening(
        cls,
        directory: Path,
        *,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        high_watermark: int = 0,
        clean_shutdown: bool = False,
        machine_restarted: bool = False,
        now_ms: int,
        fault_point: FaultPoint = no_fault_point,
    ) -> Steps["PartitionLog"]:
        """The log in `directory`, created if there is none, recovered unless `clean_shutdown`.

        The three offsets are those of the data directory's checkpoints. machine_restarted: the
        machine was without power since. Raises InconsistentTopicId when the directory is another
        topic's, KafkaStorageError when it cannot be read or written.
        """
        disk = DiskGuard(f"{topic}-{partition}")
        try:
            with disk:
                loaded = yield from load_log(
                    directory,
                    topic_id,
                    config,
                    log_start_offset=log_start_offset,
                    recovery_point=recovery_point,
                    clean_shutdown=clean_shutdown,
                    machine_restarted=machine_restarted,
                    now_ms=now_ms,
                )
        except CorruptMessage as problem:
            raise KafkaStorageError(
                f"{directory} is damaged where it had been synced: {problem}. If other replicas "
                "have the partition, delete the directory and it is copied from them"
            ) from problem
        flushed_to = loaded.log_end_offset if clean_shutdown else recovery_point
        log = cls(
            directory,
            config,
            loaded,
            recovery_point=min(flushed_to, loaded.indexed_from),
            disk=disk,
            now_ms=now_ms,
            fault_point=fault_point,
        )
        log.topic, log.partition, log.topic_id = topic, partition, topic_id
        log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        if loaded.is_cut:
            log._durability.cut(log.log_end_offset)
        if loaded.is_cut or loaded.indexed_from < flushed_to:
            try:
                log.flush()
            except KafkaStorageError:  # no room for the epochs: a cut was synced, or is to be
                log.check()
        return log

    # -- appending ---------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: memoryview,
        header: BatchHeader,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        guard: int | None = None,
        transaction_version: int = 0,
        prepare_index: int = 0,
    ) -> AppendInfo:
        """Append one batch whose form has been validated; `header` is its header.

        `records` is writable and is stamped in place with offset and epoch. `guard` is the
        verification guard of a transactional batch; `transaction_version` and `prepare_index` are
        a marker's, see `check_marker`.
        Raises what `check_client_batch` and the producer state's `check` raise, and
        RecordListTooLarge for a batch that no segment can hold.
        """
        self._disk.check()
        if self._rebuild is not None:
            run_to_end(self.rebuilding())
        config = self.config
        if len(records) > config.segment_bytes:
            raise RecordListTooLarge(
                f"A batch of {len(records)} bytes exceeds segment.bytes={config.segment_bytes}"
            )
        if origin is Origin.CLIENT:
            check_client_batch(header, config, now_ms)
        if header.attributes & CONTROL_BIT:
            written = self.producer_state.check_marker(
                header.producer_id,
                header.producer_epoch,
                decode_marker(records)[1],
                transaction_version=transaction_version,
                prepare_index=prepare_index,
            )
            if isinstance(written, MarkerAlreadyWritten):
                offset = self.log_end_offset - 1 if written.offset is None else written.offset
                return AppendInfo(offset, offset, header.max_timestamp, True)
        elif header.producer_id >= 0:
            verdict = self.producer_state.check(header, origin=origin, guard=guard)
            if isinstance(verdict, Duplicate):
                return AppendInfo(*verdict, True)
        append_time_ms = -1
        if config.uses_append_time:
            restamp_append_time(records, 0, now_ms)
            header = decode_header(records)
            append_time_ms = now_ms
        base_offset = self.log_end_offset
        restamp(records, 0, base_offset, leader_epoch)
        self._now_ms = now_ms
        with self._disk:
            if leader_epoch != self._latest_epoch:
                self._note_epoch(leader_epoch, base_offset)  # a snapshot of the batch saves it
            self._write_batch(records, header, base_offset)
        return AppendInfo(base_offset, self.log_end_offset - 1, append_time_ms, False)

    def find_duplicate(self, header: BatchHeader) -> AppendInfo | None:
        """Where a batch with these sequences is, among the last five of its producer."""
        if self._rebuild is not None:
            run_to_end(self.rebuilding())
        entry = self.producer_state.entry(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            return None
        batch = entry.find(header.base_sequence, header.last_offset_delta)
        if batch is None:
            return None
        return AppendInfo(batch.base_offset, batch.last_offset, batch.timestamp, True)

    def append_as_follower(self, records: Buffer, *, now_ms: int) -> None:
        """Append what the leader sent: batches with their offsets and epochs.

        A partial last batch is left out. Raises CorruptMessage (nothing is appended) and
        UnexpectedAppendOffset when the first batch does not continue the log.
        """
        self._disk.check()
        if self._rebuild is not None:
            run_to_end(self.rebuilding())
        try:
            batches = replicated_batches(records, self.log_end_offset)
        except UnexpectedAppendOffset:
            # An empty log that starts inside a batch (DeleteRecords on the leader) gets it whole.
            first = decode_header(records)
            if self.size_bytes or not first.base_offset < self.log_end_offset <= first.last_offset:
                raise
            log_start_offset = self.log_start_offset
            self.truncate_fully_and_start_at(first.base_offset)
            self.log_start_offset = log_start_offset
            batches = replicated_batches(records, self.log_end_offset)
        self._now_ms = now_ms
        with self._disk:
            self._write_run(memoryview(records), batches)

    def assign_leader_epoch(self, leader_epoch: int) -> None:
        """Note that a new leader's epoch begins at the log end, batch or not (KIP-101)."""
        run_to_end(self.rebuilding())
        with self._disk:
            self._note_epoch(leader_epoch, self.log_end_offset)

    # -- reading -----------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, upper_offset: int, min_one_batch: bool = True
    ) -> LogRead:
        """Whole batches from the one that holds `offset` on, all below `upper_offset`.

        At most `max_bytes`, but one batch of any size when `min_one_batch`; nothing at or above
        `upper_offset`. OffsetOutOfRange below the log start or above the log end.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"Offset {offset} of {self.topic}-{self.partition} is not within "
                f"[{self.log_start_offset}, {self.log_end_offset}]"
            )
        if offset >= upper_offset:
            return LogRead(b"", offset)
        with self._disk.retriable:
            return read_batches(
                self.segments,
                offset,
                max_bytes,
                upper_offset=upper_offset,
                log_end_offset=self.log_end_offset,
                min_one_batch=min_one_batch,
            )

    def batch_not_older(self, timestamp_ms: int, offset: int) -> TimedBatch | int | None:
        """One step of a search by time, see log_read. `offset` is at or above the log start."""
        with self._disk.retriable:
            return batch_not_older(self.segments, timestamp_ms, offset)

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of the log; -1 when there is none."""
        return max(segment.max_timestamp for segment in self.segments)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Where an epoch ends in this log: (largest epoch not above it, end offset).

        (-1, -1) when it is unknown here (KIP-101, KIP-279).
        """
        return self.leader_epochs.end_offset_for(leader_epoch, self.log_end_offset)

    # -- limits ------------------------------------------------------------------------------

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark, at most to the log end; False if it stays."""
        high_watermark = min(offset, self.log_end_offset)
        if high_watermark <= self.high_watermark:
            return False
        self._fault_point("log.high-watermark.before-advance")
        self.high_watermark = high_watermark
        self.producer_state.advance_high_watermark(high_watermark)
        self._fault_point("log.high-watermark.after-advance")
        return True

    def advance_log_start_offset(self, offset: int) -> None:
        """Forget the records below `offset` (DeleteRecords, or the leader's log start).

        Their segments go with the next `delete_old_segments`. OffsetOutOfRange above the high
        watermark; no effect below the log start.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRange(
                f"Cannot move the log start of {self.topic}-{self.partition} to {offset}, above "
                f"the high watermark {self.high_watermark}"
            )
        if offset > self.log_start_offset:
            with self._disk:
                self.log_start_offset = offset
                if self.leader_epochs.truncate_from_start(offset):
                    self._epochs_changed()

    # -- upkeep ------------------------------------------------------------------------------

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log end, unless the active one is empty."""
        self._now_ms = now_ms
        run_to_end(self.rebuilding())
        with self._disk:
            self._roll(self.log_end_offset)

    def delete_old_segments(self, now_ms: int) -> int:
        """As `deleting_old_segments`, at once."""
        return run_to_end(self.deleting_old_segments(now_ms))

    def deleting_old_segments(self, now_ms: int) -> Steps[int]:
        """Drop what retention or the log start has passed, oldest first; how many segments.

        Each step looks anew. `purge_deleted_files` then removes their files from the disk.
        """
        count, until = 0, self.high_watermark  # of now: no writer of old records keeps this going
        while True:
            self._now_ms = now_ms
            with self._disk:
                past = segments_past_retention(
                    self.segments,
                    self.config,
                    log_start_offset=self.log_start_offset,
                    high_watermark=min(self.high_watermark, until),
                    log_end_offset=self.log_end_offset,
                    now_ms=now_ms,
                )
                if not past:
                    return count
                if past[-1] is self.segments.active:
                    run_to_end(self.rebuilding())
                    self._roll(self.log_end_offset)
                oldest_kept = self.segments.after(past[-1])
                assert oldest_kept is not None
                self.advance_log_start_offset(oldest_kept.base_offset)
                self._drop_oldest(past)
            count += len(past)
            yield
