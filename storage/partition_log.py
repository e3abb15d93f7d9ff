"""One partition's log on one replica, with its offsets and the changes that each role may make.

  log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset

Consumers read below the high watermark (or below the last stable offset), followers read
everything. The leader checks a batch, writes offset and epoch into its bytes, and appends it. A
follower appends the leader's batches unchanged. An append checks everything before it writes.
"""

import logging
from pathlib import Path
from typing import Any, NamedTuple

from ..runtime.c_calls import attribute_of, new_tuple
from ..runtime.fault_point import FaultPoint, no_fault_point
from ..runtime.steps import Steps, run_to_end
from ..wire.control_record import decode_marker
from ..wire.errors import (
    KafkaStorageError,
    OffsetOutOfRange,
    RecordListTooLarge,
)
from ..wire.record_batch import (
    CONTROL_BIT,
    BatchHeader,
    Buffer,
    decode_header,
    restamp,
    restamp_append_time,
)
from .aborted_transactions import AbortedTransactions
from .batch_checks import UnexpectedAppendOffset, check_client_batch, replicated_batches
from .corrupt_file import UNREADABLE
from .disk_guard import DiskGuard
from .leader_epochs import LeaderEpochs
from .local_log import LocalLog
from .log_config import LogConfig
from .log_flushing import LogFlushing
from .log_read import (
    LogRead,
    TimedBatch,
    batch_not_older,
    read_batches,
)
from .log_recovery import load_log
from .log_retention import LogRetention
from .log_truncation import LogTruncation
from .producers.entry import Origin
from .producers.state import ProducerStateTable
from .producers.verdicts import Duplicate, MarkerAlreadyWritten
from .segments.damage import LogDamage

logger = logging.getLogger(__name__)


class AppendInfo(NamedTuple):
    """The offsets of an appended batch, or of the batch that it duplicates.

    Both offsets are inclusive. `log_append_time_ms` is -1 unless the broker's clock set the
    timestamp. For a duplicate it is the timestamp of the batch in the log, as in Kafka.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    is_duplicate: bool


class PartitionLog:
    """A log and its offsets (see LocalLog for threads, time, and failure)."""

    def __init__(self, local: LocalLog, topic: str, partition: int, topic_id: bytes) -> None:
        self.topic, self.partition, self.topic_id = topic, partition, topic_id
        self.local = local
        self.segments = local.segments
        self.flushing = LogFlushing(local)
        self.truncation = LogTruncation(local)
        self.retention = LogRetention(local)
        self.aborted_transactions = AbortedTransactions(local)
        self.uncleanable = ""  # the reason why the log is no longer compacted
        self.damage = LogDamage(local.directory.name, local.disk)

    @classmethod
    def open(cls, directory: Path, **options: Any) -> "PartitionLog":
        """Open the log in `directory` in one step (see `opening`)."""
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
        cleaned_offset: int = 0,
        clean_shutdown: bool = False,
        machine_restarted: bool = False,
        now_ms: int,
        fault_point: FaultPoint = no_fault_point,
    ) -> Steps["PartitionLog"]:
        """Open the log in `directory`.

        Create a missing log, and recover it unless `clean_shutdown`.

        The four offsets are those of the data directory's checkpoints. machine_restarted: the
        machine has lost power since the last run. Raises InconsistentTopicId for another topic's
        directory, KafkaStorageError if the directory cannot be read or written.
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
                    high_watermark=high_watermark,
                    clean_shutdown=clean_shutdown,
                    machine_restarted=machine_restarted,
                    now_ms=now_ms,
                )
        except UNREADABLE as problem:
            raise KafkaStorageError(
                f"{directory} is damaged: {problem}. If other replicas "
                "have the partition, delete the directory and it is copied from them"
            ) from problem
        flushed_to = loaded.log_end_offset if clean_shutdown else recovery_point
        local = LocalLog(
            directory,
            config,
            loaded,
            recovery_point=min(flushed_to, loaded.indexed_from),
            high_watermark=high_watermark,
            cleaned_offset=cleaned_offset,
            disk=disk,
            now_ms=now_ms,
            fault_point=fault_point,
        )
        log = cls(local, topic, partition, topic_id)
        if loaded.is_cut:
            local.durability.cut(log.log_end_offset)
        if loaded.is_cut or loaded.indexed_from < flushed_to:
            try:
                log.flushing.flush()
            except KafkaStorageError:
                # The disk is too full for the epochs; a truncation was still synced.
                disk.check()
        return log

    # -- what it is made of ------------------------------------------------------------------

    def _configure(self, config: LogConfig) -> None:
        self.local.config = config

    config: LogConfig = attribute_of("local.config", _configure)  # may be replaced at any time

    @property
    def directory(self) -> Path:
        return self.local.directory

    disk_failure: OSError | None = attribute_of("local.disk.failure")

    @property
    def is_failed(self) -> bool:
        """Return whether this log has failed."""
        return self.local.disk.failure is not None

    producer_state: ProducerStateTable = attribute_of("local.producer_state")
    leader_epochs: LeaderEpochs = attribute_of("local.leader_epochs")
    latest_epoch: int | None = attribute_of("local.latest_epoch")  # None without an epoch
    log_start_offset: int = attribute_of("local.log_start_offset")
    high_watermark: int = attribute_of("local.high_watermark")
    log_end_offset: int = attribute_of("local.log_end_offset")

    @property
    def known_last_stable_offset(self) -> int | None:
        """Return the LSO if it is known, or None while producers are rebuilt."""
        return None if self.local.rebuild is not None else self.last_stable_offset

    @property
    def last_stable_offset(self) -> int:
        """Return the LSO, the exclusive end of committed data."""
        local = self.local
        if local.rebuild is not None:
            run_to_end(local.rebuilding())
        stable = local.producer_state.last_stable_offset(local.high_watermark)
        return max(stable, local.log_start_offset)

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
        """Append one batch of a valid format. `header` is its header.

        `records` is writable, and offset and epoch are written into it. `guard` is the verification
        guard of a transactional batch. `transaction_version` and `prepare_index` belong to a marker
        (see `check_marker`). Raises the errors of `check_client_batch` and of the producer state's
        `check`, and RecordListTooLarge for a batch that fits into no segment.
        """
        local, disk = self.local, self.local.disk
        if disk.failure is not None:
            disk.check()
        if local.rebuild is not None:
            run_to_end(local.rebuilding())
        config = local.config
        if len(records) > config.segment_bytes:
            raise RecordListTooLarge(
                f"A batch of {len(records)} bytes exceeds segment.bytes={config.segment_bytes}"
            )
        if origin is Origin.CLIENT:
            check_client_batch(header, config, now_ms)
        if header.attributes & CONTROL_BIT:
            written = local.producer_state.check_marker(
                header.producer_id,
                header.producer_epoch,
                decode_marker(records)[1],
                transaction_version=transaction_version,
                prepare_index=prepare_index,
            )
            if isinstance(written, MarkerAlreadyWritten):
                offset = local.log_end_offset - 1 if written.offset is None else written.offset
                return AppendInfo(offset, offset, header.max_timestamp, True)
        elif header.producer_id >= 0:
            verdict = local.producer_state.check(header, origin=origin, guard=guard)
            if isinstance(verdict, Duplicate):
                return AppendInfo(*verdict, True)
        append_time_ms = -1
        if config.uses_append_time:
            restamp_append_time(records, 0, now_ms)
            header = decode_header(records)
            append_time_ms = now_ms
        base_offset = local.log_end_offset
        restamp(records, 0, base_offset, leader_epoch)
        local.now_ms = now_ms
        try:
            if leader_epoch != local.latest_epoch:
                local.note_epoch(leader_epoch, base_offset)  # saved by the snapshot of this batch
            local.write_batch(records, header, base_offset)
        except OSError as problem:
            disk.met(problem)
        offsets = base_offset, local.log_end_offset - 1
        return new_tuple(AppendInfo, (*offsets, append_time_ms, False))

    def find_duplicate(self, header: BatchHeader) -> AppendInfo | None:
        """Return the batch with the producer, epoch and sequences of this header, or None.

        Only the last five batches of the producer are known. Batches of aborted transactions have
        no duplicates.
        """
        local = self.local
        if local.rebuild is not None:
            run_to_end(local.rebuilding())
        entry = local.producer_state.entry(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            return None
        batch = entry.find(header.base_sequence, header.last_offset_delta)
        if batch is None or batch.is_aborted:
            return None
        return AppendInfo(batch.base_offset, batch.last_offset, batch.timestamp, True)

    def append_as_follower(self, records: Buffer, *, now_ms: int) -> None:
        """Append the leader's batches, with their offsets and epochs.

        A partial last batch is ignored. Raises CorruptMessage (nothing is appended), and
        UnexpectedAppendOffset if the first batch begins below the log end. An empty log that starts
        within the first batch is moved to the start of that batch.
        """
        local, disk = self.local, self.local.disk
        if disk.failure is not None:
            disk.check()
        if local.rebuild is not None:
            run_to_end(local.rebuilding())
        try:
            batches = replicated_batches(records, local.log_end_offset)
        except UnexpectedAppendOffset:
            # An empty log that starts within a batch (DeleteRecords on the leader) gets the whole
            # batch.
            first = decode_header(records)
            if (
                self.segments.size_bytes
                or not first.base_offset < local.log_end_offset <= first.last_offset
            ):
                raise
            log_start_offset = local.log_start_offset
            self.truncation.truncate_fully_and_start_at(first.base_offset)
            local.log_start_offset = log_start_offset
            batches = replicated_batches(records, local.log_end_offset)
        local.now_ms = now_ms
        try:
            local.write_run(memoryview(records), batches)
        except OSError as problem:
            disk.met(problem)

    def assign_leader_epoch(self, leader_epoch: int) -> None:
        """Record that a new epoch begins at the log end, even without a batch (KIP-101)."""
        local = self.local
        run_to_end(local.rebuilding())
        with local.disk:
            local.note_epoch(leader_epoch, local.log_end_offset)

    # -- reading -----------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, upper_offset: int, min_one_batch: bool = True
    ) -> LogRead:
        """Read whole batches from the batch that holds `offset` on, all below `upper_offset`.

        At most `max_bytes` are read, but one batch of any size with `min_one_batch`. Nothing at or
        above `upper_offset` is read. Raises OffsetOutOfRange below the log start or above the log
        end.
        """
        local = self.local
        if not local.log_start_offset <= offset <= local.log_end_offset:
            raise OffsetOutOfRange(
                f"Offset {offset} of {self.topic}-{self.partition} is not within "
                f"[{local.log_start_offset}, {local.log_end_offset}]"
            )
        if offset >= upper_offset:
            return LogRead(b"", offset)
        disk = local.disk
        if disk.failure is not None:
            disk.check()
        try:
            return read_batches(
                self.segments,
                local.leader_epochs,
                offset,
                max_bytes,
                upper_offset=upper_offset,
                log_end_offset=local.log_end_offset,
                min_one_batch=min_one_batch,
            )
        except OSError as problem:
            disk.met_retriable(problem)
        except UNREADABLE as problem:
            self.damage.met(problem)

    def batch_not_older(self, timestamp_ms: int, offset: int) -> TimedBatch | int | None:
        """Return the next batch with this timestamp or a later one (see log_read.batch_not_older).

        `offset` must not be below the log start offset.
        """
        local, disk = self.local, self.local.disk
        try:
            with disk.retriable:
                return batch_not_older(
                    self.segments, local.leader_epochs, timestamp_ms, offset, local.log_end_offset
                )
        except UNREADABLE as problem:
            self.damage.met(problem)

    @property
    def max_timestamp(self) -> int:
        """Return the largest timestamp of the log, or -1."""
        try:
            with self.local.disk.retriable:
                return max(segment.max_timestamp for segment in self.segments)
        except UNREADABLE as problem:
            self.damage.met(problem)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Return (the largest epoch up to `leader_epoch`, its end offset).

        Both are -1 if `leader_epoch` is later than every epoch known here (KIP-101, KIP-279).
        """
        return self.local.leader_epochs.end_offset_for(leader_epoch, self.local.log_end_offset)

    # -- limits ------------------------------------------------------------------------------

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark, at most to the log end. Return False if it does not rise."""
        local = self.local
        end_offset, has_faults = local.log_end_offset, local.fault_point is not no_fault_point
        high_watermark = offset if offset < end_offset else end_offset
        if high_watermark <= local.high_watermark:
            return False
        if has_faults:
            local.fault_point("log.high-watermark.before-advance")
        local.high_watermark = high_watermark
        local.producer_state.advance_high_watermark(high_watermark)
        if has_faults:
            local.fault_point("log.high-watermark.after-advance")
        return True

    # -- upkeep ------------------------------------------------------------------------------

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log end, unless the active segment is empty."""
        local = self.local
        local.now_ms = now_ms
        run_to_end(local.rebuilding())
        with local.disk:
            local.roll(local.log_end_offset)

    def close(self) -> None:
        """Write and sync everything, so that the next start need not recover (blocks)."""
        self.flushing.write_last()
        self.flushing.sync_last()
