"""The files of one log, together with the state that is derived from them.

Three things are derived from the batches in the segments, which are the sparse indexes, the leader
epochs, and the producer state with its transaction index. Each change of the segments (append,
roll, truncate, drop, replace) also changes the derived state. PartitionLog decides which changes
are allowed and which offsets are committed. LogFlushing, LogTruncation and AbortedTransactions are
in between.

An append writes the bytes first, then changes the memory. If a write fails, the memory is
unchanged. The log has then failed until a restart has recovered its directory, unless only
resources (such as disk space) were lacking.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..runtime.fault_point import FaultPoint, no_fault_point
from ..runtime.steps import Steps
from ..wire.errors import KafkaStorageError
from ..wire.record_batch import CONTROL_BIT, LENGTH_COUNTS_FROM, BatchHeader
from .checkpoint import LeaderEpochCheckpoint
from .corrupt_file import UNREADABLE
from .disk_guard import DiskGuard
from .log_config import LogConfig
from .log_durability import Durability
from .log_recovery import LoadedLog
from .producers.recovery import load_producers, take_in
from .producers.snapshot import encode as encode_snapshot
from .producers.state import ProducerStateTable
from .segments.advanced_clock import AdvancedSince, never_advanced
from .segments.contiguous_mark import unmark
from .segments.damage import Damaged
from .segments.log_file import Buffer
from .segments.retention import DeletedFiles
from .segments.segment import Segment
from .segments.segment_list import while_unchanged
from .segments.segment_swap import swap_in
from .topic_configs import INT_MAX

logger = logging.getLogger(__name__)

# Snapshots between those of new segments, so that a start after a kill, or a truncation, replays at
# most this; each batch counts as a number of bytes. Kafka has none, and reads a whole segment.
SNAPSHOT_INTERVAL_BYTES = 16 << 20
BATCH_COUNTS_AS_BYTES = 16 << 10
# More producers are encoded in steps, and only after each could have sent a few batches.
SNAPSHOT_AT_ONCE_PRODUCERS_MAX = 1000
SNAPSHOT_BYTES_A_PRODUCER = 4 * BATCH_COUNTS_AS_BYTES


class LocalLog:
    """The segments of a log, the derived state, and the log's offsets.

    One thread owns the log, and jobs that it creates run in any other thread. `now_ms` is
    wall-clock time, and methods without `now_ms` use the most recent value. `config` may be
    replaced at any time. Public methods raise KafkaStorageError for an OSError (see DiskGuard).
    """

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        loaded: LoadedLog,
        *,
        recovery_point: int,
        high_watermark: int,
        cleaned_offset: int,
        disk: DiskGuard,
        now_ms: int,
        fault_point: FaultPoint,
    ) -> None:
        self.directory = directory
        self.config = config
        self.segments = loaded.segments
        self.producer_state = loaded.producer_state
        self.leader_epochs = loaded.leader_epochs
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = min(max(high_watermark, self.log_start_offset), self.log_end_offset)
        # The end of the compacted part, see compaction/plan.py; 0 without compaction.
        self.cleaned_offset = min(cleaned_offset, self.log_end_offset)
        self.latest_epoch = self.leader_epochs.latest_epoch  # cached, since every append reads it
        self.snapshots = loaded.snapshots
        self._unsaved_bytes = 0
        # Rebuilds the producers after a truncation.
        self.rebuild: Steps[ProducerStateTable] | None = None
        # True when a snapshot would take too long for an append; call `snapshotting`.
        self.snapshot_needed = False
        self._epoch_checkpoint = LeaderEpochCheckpoint(directory, fault_point)
        self._epochs_unsaved = not loaded.are_epochs_saved
        self.durability = Durability(
            min(recovery_point, self.log_end_offset), fault_point, is_synced=loaded.is_synced
        )
        self.deleted = DeletedFiles()
        self.disk = disk
        self.now_ms = now_ms  # the most recent wall-clock time
        self.advanced_since_ms: AdvancedSince = never_advanced
        self.fault_point = fault_point
        self._is_contiguous = loaded.is_contiguous

    # -- growing -----------------------------------------------------------------------------

    def write_batch(self, records: Buffer, header: BatchHeader, base_offset: int) -> None:
        """Append one batch at `base_offset`. The base offset in `header` is not used."""
        size_bytes = len(records)
        last_offset = base_offset + header.last_offset_delta
        segment = self.segments.active
        if segment.should_roll(
            self.config,
            size_bytes,
            header.max_timestamp,
            last_offset,
            self.now_ms,
            self.advanced_since_ms,
        ):
            segment = self.roll(base_offset)
        self._write(segment, records)
        recent = self.segments.recent
        if size_bytes >= recent.min_bytes:
            recent.note(segment, segment.size_bytes, records)
        segment.add_batch(size_bytes, last_offset, header.max_timestamp)
        self.log_end_offset = last_offset + 1
        if header.attributes & CONTROL_BIT:
            note_aborted = segment.transaction_index.append
            take_in(self.producer_state, header, base_offset, records, self.now_ms, note_aborted)
        else:
            self.producer_state.append(header, base_offset, self.now_ms)
        self._written(size_bytes, 1)

    def _write(self, segment: Segment, records: Buffer) -> None:
        if self.disk.failure is not None:  # the new segment may have failed just before
            self.disk.check()
        try:
            if self.fault_point is no_fault_point:
                segment.write(records)
            else:
                self.fault_point("log.append.before-write")
                segment.write(records)
                self.fault_point("log.append.after-write")
        except OSError as problem:
            self.disk.met_retriable(problem)

    def write_run(self, records: memoryview, batches: Sequence[tuple[int, BatchHeader]]) -> None:
        """Append batches unchanged, with one write for those in the same segment.

        New segments begin by the same rule as on the leader, so they have the same base offsets. A
        segment begins with the next offset after the last batch, so that a gap left by compaction
        on the leader is within a segment. Between two segments the gap would count as damage after
        a power failure. (No segment can contain a gap of 31 bits.)
        """
        run: list[tuple[int, BatchHeader]] = []
        run_start = run_end = 0
        next_offset = self.log_end_offset
        for position, header in batches:
            size_bytes = header.batch_length + LENGTH_COUNTS_FROM
            last_offset = header.base_offset + header.last_offset_delta
            if header.base_offset != next_offset:
                self.note_gaps()
            next_offset = last_offset + 1
            if self.segments.active.should_roll(
                self.config,
                run_end - run_start + size_bytes,
                header.max_timestamp,
                last_offset,
                self.now_ms,
                self.advanced_since_ms,
            ):
                self._write_to_active(records[run_start:run_end], run_start, run)
                is_near = last_offset - self.log_end_offset <= INT_MAX
                self.roll(self.log_end_offset if is_near else header.base_offset)
                run, run_start = [], position
            run.append((position, header))
            run_end = position + size_bytes
        self._write_to_active(records[run_start:run_end], run_start, run)

    def note_gaps(self) -> None:
        """Record that offsets may be missing, before a gap is written or left by a compaction."""
        if self._is_contiguous:
            with self.disk.retriable:
                unmark(self.directory)
            self._is_contiguous = False
            self.durability.names_changed()

    def _write_to_active(
        self,
        data: memoryview,
        data_start: int,
        run: Sequence[tuple[int, BatchHeader]],
    ) -> None:
        if not run:
            return
        segment = self.segments.active
        self._write(segment, data)
        note_aborted = segment.transaction_index.append
        for position, header in run:
            base_offset = header.base_offset
            size_bytes = header.batch_length + LENGTH_COUNTS_FROM
            last_offset = base_offset + header.last_offset_delta
            segment.add_batch(size_bytes, last_offset, header.max_timestamp)
            self.log_end_offset = last_offset + 1
            if header.partition_leader_epoch != self.latest_epoch:
                self.note_epoch(header.partition_leader_epoch, base_offset)
            if header.attributes & CONTROL_BIT:
                start = position - data_start
                batch = data[start : start + size_bytes]
                take_in(self.producer_state, header, base_offset, batch, self.now_ms, note_aborted)
            else:
                self.producer_state.append(header, base_offset, self.now_ms)
        self._written(len(data), len(run))

    def _written(self, size_bytes: int, batch_count: int) -> None:
        if self.durability.unsynced_since_ms is None:
            self.durability.unsynced_since_ms = self.now_ms
        self._unsaved_bytes += size_bytes + batch_count * BATCH_COUNTS_AS_BYTES
        if self._unsaved_bytes >= SNAPSHOT_INTERVAL_BYTES:
            self.snapshot_soon()

    def note_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Record that an epoch begins. The next flush, snapshot or segment saves it.

        Recovery also finds the epoch in later batches. Replacing a file for each partition would
        delay a broker that is elected for many partitions, because a rename waits for dirty pages.
        """
        if leader_epoch >= 0 and self.leader_epochs.assign(leader_epoch, start_offset):
            self.epochs_changed()

    def epochs_changed(self) -> None:
        self.latest_epoch = self.leader_epochs.latest_epoch
        self._epochs_unsaved = True

    def save_epochs(self) -> None:
        """Save the epochs if they have changed.

        Raises KafkaStorageError if the write fails.
        """
        if self._epochs_unsaved:
            with self.disk.retriable:
                self._epoch_checkpoint.write(self.leader_epochs.entries, fsync=False)
            self._epochs_unsaved = False
            self.durability.names_changed()

    # -- segments ----------------------------------------------------------------------------

    def roll(self, base_offset: int) -> Segment:
        """Close the active segment, begin one at `base_offset`, and write a producer snapshot.

        With many producers the snapshot is only requested. An empty active segment that begins at
        `base_offset` is returned unchanged.
        """
        active = self.segments.active
        if active.size_bytes == 0 and active.base_offset == base_offset:
            return active
        self.fault_point("log.roll.before-create")
        with self.disk.retriable:
            self.save_epochs()
            active.become_inactive()
            segment = self._new_segment(base_offset)
        if active.size_bytes == 0:  # empty, but the gap in the offsets is too wide for it
            self.segments.remove(active)
            active.delete()
        logger.info(
            "%s: the log rolled a new segment at offset %d", self.directory.name, base_offset
        )
        self.fault_point("log.roll.after-create")
        self.producer_state.skip_to(base_offset)
        self.snapshot_soon(is_roll=True)
        return segment

    def _new_segment(self, base_offset: int) -> Segment:
        Segment.remove_files(self.directory, base_offset)
        try:
            segment = Segment(self.directory, base_offset, self.config, self.now_ms)
            if self.config.preallocate:
                segment.preallocate(self.config.segment_bytes)
        except OSError:  # remove it, since the older segment may grow beyond it
            Segment.remove_files(self.directory, base_offset)
            raise
        self.segments.add(segment)
        self.durability.names_changed()
        return segment

    def snapshot_soon(self, *, is_roll: bool = False) -> None:
        """Save a snapshot of the producer state immediately if there are few producers.

        For many producers `snapshotting` is requested, if a segment was rolled (`is_roll`) or
        enough bytes were appended since the last snapshot.
        """
        count = len(self.producer_state)
        if count <= SNAPSHOT_AT_ONCE_PRODUCERS_MAX:
            self.take_snapshot()
        elif is_roll or self._unsaved_bytes >= count * SNAPSHOT_BYTES_A_PRODUCER:
            self.snapshot_needed = True

    def snapshotting(self) -> Steps[None]:
        """Save the current producer state in steps, while the log is in use."""
        yield from self.rebuilding()
        self.snapshot_needed = False
        self._unsaved_bytes = 0
        state: ProducerStateTable = self.producer_state
        cut = state.begin_snapshot()
        content = yield from cut.encode()
        # Otherwise the log was truncated in the meantime.
        if state.cut is cut and state is self.producer_state:
            state.cut = None
            self._write_snapshot(cut.end_offset, content)

    def take_snapshot(self) -> None:
        self._unsaved_bytes = 0
        state = self.producer_state
        self._write_snapshot(state.end_offset, encode_snapshot(state.snapshot_entries()))

    def _write_snapshot(self, end_offset: int, content: bytes) -> None:
        """Write a snapshot together with the indexes below it, for a quick start after a kill.

        Such a start reads no epochs below the snapshot, so the epochs are saved first. If the disk
        is full, no snapshot is written.
        """
        with suppress(KafkaStorageError), self.disk.retriable:
            self.save_epochs()
            self.segments.active.write_out()
            self.fault_point("log.snapshot.before-write")
            self.snapshots.write(end_offset, content)
            self.fault_point("log.snapshot.after-write")
            self.snapshots.remove_between({segment.base_offset for segment in self.segments})

    def rebuild_soon(self) -> None:
        """Request `rebuilding`, because the producer state is not that of the log end."""
        self.producer_state.cut = None  # a snapshot being encoded would be above the end
        self.rebuild = self._loading()

    def _loading(self) -> Steps[ProducerStateTable]:
        """Load the producers. Start over whenever a segment is removed meanwhile."""
        loaded: ProducerStateTable | None = None
        while loaded is None:
            at = self.segments, self.snapshots, self.log_end_offset, self.now_ms
            steps = load_producers(*at, self.high_watermark)
            loaded = yield from while_unchanged(self.segments, steps)
        return loaded

    def rebuilding(self) -> Steps[None]:
        """Rebuild the producer state after a truncation, in steps, while the old state is used.

        A caller that needs the new state earlier (an append, a new leader) runs all steps.
        """
        while self.rebuild is not None:
            with self.disk:
                try:
                    with self.disk.retriable:
                        next(self.rebuild)
                except StopIteration as end:
                    self.producer_state, self.rebuild = end.value, None
                except Exception as problem:  # for example too many open files
                    self.rebuild_soon()  # retry later; a generator that has raised cannot continue
                    if isinstance(problem, UNREADABLE):
                        message = f"what a truncation left is damaged: {problem}"
                        raise Damaged(message) from problem
                    raise
            yield

    def replace_segments(self, base_offset: int, replaced: Sequence[Segment]) -> Segment:
        """Replace segments by the compacted segment in the .cleaned files (see segment_swap)."""
        self.note_gaps()
        with self.disk:
            # An older snapshot may have a transaction without its marker, which was removed.
            newer = self.segments.after(replaced[-1])
            end_offset = self.log_end_offset if newer is None else newer.base_offset
            self.snapshots.remove([at for at in self.snapshots.offsets if at < end_offset])
            cut = self.producer_state.cut
            if cut is not None and cut.end_offset < end_offset:
                self.producer_state.cut = None  # the snapshot being encoded may, too
            segment = swap_in(
                self.segments,
                base_offset,
                replaced,
                self.config,
                self.deleted,
                now_ms=self.now_ms,
                retriable=self.disk.retriable,
                fault_point=self.fault_point,
            )
            self.durability.names_changed()
            return segment

    # -- the end ----------------------------------------------------------------------------

    def retire(self, why: str = "it has been deleted", *, is_damaged: bool = False) -> None:
        """Mark the log as failed, so that each later use raises KafkaStorageError.

        why: the text of that error. is_damaged: a file of the log is damaged, and the log was not
        deleted.
        """
        self.disk.failure = (Damaged if is_damaged else OSError)(f"{self.directory}: {why}")
