"""The opening of a log, which checks the parts that may be lost, and rebuilds derived files.

The end of the last run determines which parts may be missing:

    closed cleanly, or       nothing is missing, because the page cache outlives a process. Only
    the process was killed   the end is read, from the newest producer snapshot and the last index
                             entry on; the last write of a killed process may be incomplete.
    the machine lost power   any page that was not synced may be missing. The segments from the
                             recovery point on are read completely.

The read stops before the first batch that is incomplete or has a wrong CRC, and the log ends there.
Indexes, leader epochs, and producer state of the part that was read are rebuilt from its batches. A
segment with inconsistent indexes is read completely, and so are all later segments. An unreadable
batch is damage if it was synced, or if whole batches follow the batch although nothing was lost. A
log with such a batch is not opened. A log that could not be synced is treated as after a power
failure, since the kernel drops such pages from its cache without another error. The file
FLUSH_FAILED in the directory marks such a log.
"""

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ..runtime.steps import Steps
from ..wire.errors import CorruptMessage, InconsistentTopicId, InvalidRecord
from ..wire.record_batch import BatchHeader
from .checkpoint import (
    PARTITION_METADATA,
    PARTITION_METADATA_BYTES_MIN,
    TEMPORARY_SUFFIX,
    CorruptCheckpoint,
    LeaderEpochCheckpoint,
    PartitionMetadata,
    encode_uuid,
)
from .disk_guard import OUT_OF_RESOURCES
from .epoch_recovery import assign_epoch, load_epochs
from .flush_job import FLUSH_FAILED
from .leader_epochs import EpochStart, LeaderEpochs
from .log_config import LogConfig
from .producers.recovery import load_producers, take_in
from .producers.snapshot_files import SnapshotFiles
from .producers.state import ProducerStateTable
from .segments.contiguous_mark import is_marked, mark, unmark
from .segments.damage import checking_batches
from .segments.index import CorruptIndex
from .segments.log_file import scan_batches
from .segments.segment import SUFFIXES, Segment
from .segments.segment_list import SegmentList
from .segments.segment_swap import finish_swaps
from .segments.torn_tail import is_followed_by_a_batch
from .segments.transaction_index import CorruptTransactionIndex
from .topic_configs import INT_MAX, LONG_MAX

logger = logging.getLogger(__name__)
_BATCHES_A_STEP = 64  # take about 0.3 ms if they are small
_BYTES_A_STEP = 256 << 10


class LoadedLog(NamedTuple):
    """The parts of an open log after recovery, up to `log_end_offset`."""

    segments: SegmentList
    snapshots: SnapshotFiles
    producer_state: ProducerStateTable
    leader_epochs: LeaderEpochs
    log_start_offset: int
    log_end_offset: int
    is_contiguous: bool  # no offset was ever missing, see contiguous_mark
    is_cut: bool  # batches were removed, so a flush must precede the next append
    # Everything is on the disk as after a clean end, with names and indexes.
    is_synced: bool = False
    # Indexes were rebuilt from this offset on, maybe below the synced offset.
    indexed_from: int = LONG_MAX
    are_epochs_saved: bool = True


def load_log(
    directory: Path,
    topic_id: bytes,
    config: LogConfig,
    *,
    log_start_offset: int,
    recovery_point: int,
    high_watermark: int,
    clean_shutdown: bool,
    machine_restarted: bool,
    now_ms: int,
) -> Steps[LoadedLog]:
    """Open the files of a partition. Create or repair them as needed.

    machine_restarted: the machine has lost power since the last run, so any page that was not
    synced may be missing. Raises OSError, InconsistentTopicId for another topic's directory, and
    CorruptMessage for damage (see the top of this file).
    """
    try:
        directory.mkdir(parents=True)
    except FileExistsError:
        may_be_unsynced = machine_restarted and not clean_shutdown and not recovery_point
        _check_topic(directory, topic_id, may_be_unsynced)
    else:
        return _begin_log(directory, topic_id, config, log_start_offset, now_ms)
    finish_swaps(directory)
    segments = yield from _open_segments(directory, config, log_start_offset, now_ms)
    snapshots = SnapshotFiles(directory)
    lost_pages = (directory / FLUSH_FAILED).exists()
    if lost_pages:
        for segment in segments.from_floor(recovery_point - 1):
            segment.file.drop_cache()  # pages that could not be written count as clean in the cache
    log_start_offset = max(log_start_offset, segments.first.base_offset)
    may_lack_pages = lost_pages or (machine_restarted and not clean_shutdown)
    recovery = _Recovery(
        directory,
        config,
        segments,
        snapshots,
        log_start_offset,
        high_watermark,
        now_ms,
        whole_to=recovery_point if may_lack_pages else LONG_MAX,
        synced_to=recovery_point,
        is_contiguous=is_marked(directory),
    )
    if may_lack_pages:
        snapshots.remove_unreadable()
        # Include the segment that ends at the recovery point, which may have been the active
        # segment. A flush does not sync the indexes of the active segment.
        dirty_from = segments.floor(recovery_point - 1) or segments.first
        damaged = yield from _first_damaged(segments, until=dirty_from)
        if damaged is not None:
            recovery.index_anew_from(damaged)
        yield from recovery.read_from(damaged or dirty_from, whole_to=recovery_point)
    else:
        active = segments.active
        damaged = yield from _first_damaged(segments, until=active)
        if damaged is None:
            try:
                yield from recovery.resume(active, was_killed=not clean_shutdown)
                recovery.is_as_closed = clean_shutdown
            except (CorruptIndex, CorruptTransactionIndex) as problem:
                # The producers' state may have needed an older segment, of which only the first and
                # the last index entry were checked.
                damaged = next((each for each in segments if problem.path in each.paths()), active)
            except (CorruptMessage, InvalidRecord):  # the log differs from what was written
                unsynced = None if clean_shutdown else segments.floor(recovery_point - 1)
                damaged = unsynced or active
        if damaged is not None:
            recovery.index_anew_from(damaged)
            yield from recovery.read_from(damaged, whole_to=LONG_MAX)
    loaded = yield from recovery.finish()
    if lost_pages:
        (directory / FLUSH_FAILED).unlink()
    return loaded


def _begin_log(
    directory: Path, topic_id: bytes, config: LogConfig, log_start_offset: int, now_ms: int
) -> LoadedLog:
    """Create a log without a search for files, since thousands of partitions may be created."""
    PartitionMetadata(topic_id).write(directory, fsync=False)
    mark(directory)
    segments = SegmentList()
    segments.add(Segment(directory, log_start_offset, config, now_ms))
    return LoadedLog(
        segments,
        SnapshotFiles(directory),
        ProducerStateTable(log_start_offset),
        LeaderEpochs(),
        log_start_offset,
        log_start_offset,
        is_contiguous=True,
        is_cut=False,
    )


@dataclass(slots=True)
class _Recovery:
    """The parts of a log during its recovery."""

    directory: Path
    config: LogConfig
    segments: SegmentList
    snapshots: SnapshotFiles
    log_start_offset: int
    high_watermark: int  # that of the checkpoint
    now_ms: int
    whole_to: int  # a batch below this offset may be missing only if no later one exists
    synced_to: int
    is_contiguous: bool
    producers: ProducerStateTable = field(default_factory=ProducerStateTable)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    saved_epochs: tuple[EpochStart, ...] = ()
    is_as_closed: bool = False
    has_gap: bool = False
    is_cut: bool = False
    indexed_from: int = LONG_MAX

    def resume(self, active: Segment, *, was_killed: bool) -> Steps[None]:
        """Load the newest producer snapshot, and read only the active segment's batches after it.

        Batches after the last index entry are also read. Raises CorruptIndex,
        CorruptTransactionIndex or CorruptMessage if the indexes or their batches are inconsistent.
        """
        if was_killed:
            active.drop_torn_entries()
        yield from active.checking()
        newest = active.time_index.last_entry
        while True:
            state_end = max([active.base_offset, *self.snapshots.offsets[-1:]])
            yield from self._load_state(state_end)
            active.rewind_to(state_end)
            # The remaining batches are read again.
            self.epochs.truncate_from_end(active.next_offset)
            yield from self._read_rest(active)
            if active.next_offset >= state_end:
                active.check_newest(newest, is_as_closed=not was_killed)
                return
            # Snapshots above the end remain after a truncation that a crash interrupted.
            self.snapshots.remove_above(active.next_offset)

    def index_anew_from(self, segment: Segment) -> None:
        """Record that all indexes from this segment on must be rebuilt."""
        logger.warning("%s: the indexes are rebuilt from the log", segment.file.path)
        self.indexed_from = segment.base_offset

    def read_from(self, dirty_from: Segment, *, whole_to: int) -> Steps[None]:
        """Read a segment and all newer segments. End the log before the first incomplete batch.

        A power failure can remove the end of a segment, exactly between two batches, and leave a
        newer segment. Therefore the log also ends before a gap between segments, unless the newer
        segment begins at or below `whole_to`. Compaction leaves gaps, but only below the recovery
        point on the disk.
        """
        segments = self.segments
        while True:
            try:
                yield from self._load_state(dirty_from.base_offset)
                break
            except CorruptIndex as problem:
                dirty_from = self._older_with(problem, dirty_from)
        self.epochs.truncate_from_end(dirty_from.base_offset)
        is_cut = False
        end_offset = dirty_from.base_offset
        for segment in segments.from_floor(dirty_from.base_offset):
            is_cut |= segment.base_offset > max(end_offset, whole_to)
            if is_cut or segment.base_offset < end_offset:
                self.is_cut = True
                segments.remove(segment)
                segment.delete()
                continue
            segment.start_over()
            is_cut = yield from self._read_rest(segment)
            yield
            end_offset = segment.next_offset
            newer = None if is_cut else segments.after(segment)
            if newer is not None:
                segment.become_inactive()
            segment.end_rebuild(must_sync=newer is not None and newer.base_offset < self.synced_to)

    def _older_with(self, problem: CorruptIndex, dirty_from: Segment) -> Segment:
        """Return the segment before `dirty_from` with this index, which must be rebuilt, too."""
        for segment in self.segments:
            if segment is dirty_from:
                break
            if problem.path in segment.paths():
                self.index_anew_from(segment)
                return segment
        raise problem

    def finish(self) -> Steps[LoadedLog]:
        """Bring epochs and producer state in line with the recovered log end. Return the log."""
        segments, snapshots = self.segments, self.snapshots
        producers, epochs = self.producers, self.epochs
        if segments.active.next_offset < self.log_start_offset:
            # DeleteRecords has removed all remaining batches, so no batch of this log is valid.
            self.is_cut = True
            for segment in segments:
                segments.remove(segment)
                segment.delete()
            segments.add(Segment(self.directory, self.log_start_offset, self.config, self.now_ms))
            producers.clear(self.log_start_offset)
            epochs.clear()
        log_end_offset = segments.active.next_offset
        epochs.truncate_from_end(log_end_offset)
        epochs.truncate_from_start(self.log_start_offset)
        producers.skip_to(log_end_offset)
        producers.advance_high_watermark(self.high_watermark)
        are_epochs_saved = epochs.entries == self.saved_epochs
        try:
            if not are_epochs_saved:
                LeaderEpochCheckpoint(self.directory).write(epochs.entries, fsync=False)
                are_epochs_saved = True
            if log_end_offset > self.log_start_offset and log_end_offset not in snapshots.offsets:
                content = yield from producers.begin_snapshot().encode()
                producers.cut = None
                segments.active.write_out()
                snapshots.write(log_end_offset, content)
        except OSError as problem:  # if the disk is full the next start reads the same again
            if problem.errno not in OUT_OF_RESOURCES:
                raise
        bases = {segment.base_offset for segment in segments}
        snapshots.remove(at for at in snapshots.offsets[:-1] if at not in bases)
        snapshots.remove_above(log_end_offset)
        is_contiguous = self.is_contiguous and not self.has_gap
        if self.is_contiguous and self.has_gap:  # a power failure undid the removal of the mark
            unmark(self.directory)
            self.is_cut = True
        is_changed = self.is_cut or epochs.entries != self.saved_epochs or snapshots.unsynced
        return LoadedLog(
            segments,
            snapshots,
            producers,
            epochs,
            self.log_start_offset,
            log_end_offset,
            is_contiguous,
            self.is_cut,
            self.is_as_closed and not is_changed,
            self.indexed_from,
            are_epochs_saved,
        )

    def _load_state(self, end_offset: int) -> Steps[None]:
        """Load producers and epochs as of `end_offset`."""
        self.epochs, self.saved_epochs = yield from load_epochs(
            self.directory, self.segments, self.log_start_offset, end_offset
        )
        try:
            self.producers = yield from load_producers(
                self.segments, self.snapshots, end_offset, self.now_ms, self.high_watermark
            )
        except CorruptIndex as problem:
            # a damaged batch, which looks the same, is no incomplete write to be removed
            yield from checking_batches(self.segments, problem.path)
            raise

    def _read_rest(self, segment: Segment) -> Steps[bool]:
        """Read the batches that `segment` does not have yet.

        Return whether an unreadable end was cut.

        Batches that the producers already know are only added to the indexes.
        """
        producers, epochs = self.producers, self.epochs
        known_to = producers.end_offset
        end = segment.file.size_on_disk()
        count, problem, gap_from = 0, "", -1
        try:
            for _, header, batch in scan_batches(segment.file, segment.size_bytes, end):
                if not _belongs(segment, header):
                    if self.whole_to == LONG_MAX:  # no incomplete write has a checksum
                        problem = f"offset {header.base_offset} after"
                    break
                if -1 < header.partition_leader_epoch < (epochs.latest_epoch or 0):
                    problem = "an epoch before"  # the epoch of an earlier batch was altered
                    break
                if header.base_offset >= known_to:
                    note_aborted = segment.transaction_index.append
                    take_in(producers, header, header.base_offset, batch, self.now_ms, note_aborted)
                gap_from = segment.next_offset if header.base_offset > segment.next_offset else -1
                self.has_gap |= gap_from >= 0
                segment.add_batch(header.size_bytes, header.last_offset, header.max_timestamp)
                assign_epoch(epochs, header)
                count += 1
                if count % _BATCHES_A_STEP == 0 or header.size_bytes > _BYTES_A_STEP:
                    # Otherwise the first fetch removes all replicated transactions at once.
                    producers.advance_high_watermark(self.high_watermark)
                    yield
        except (CorruptMessage, InvalidRecord):
            # Incomplete, damaged, or a control batch that is not a marker: the log ends before it.
            pass
        newer = self.segments.after(segment)
        is_confirmed = newer is not None and newer.base_offset >= segment.next_offset
        # A power failure may undo the removal of the mark, but not below the synced offset.
        is_damage = self.is_contiguous and 0 <= gap_from < self.whole_to
        if is_damage and not (problem or is_confirmed):
            problem = "a gap, which no later batch confirms, before"
        if problem:
            raise CorruptMessage(f"{segment.file.path}: {problem} {segment.next_offset}")
        if segment.size_bytes == end:
            return False
        self._check_tail(segment, end)
        logger.warning(
            "%s: recovery removed %d bytes without a complete batch, and the log now "
            "ends at offset %d",
            segment.file.path,
            end - segment.size_bytes,
            segment.next_offset,
        )
        segment.file.truncate(segment.size_bytes)
        self.is_cut = True
        return True

    def _check_tail(self, segment: Segment, end: int) -> None:
        """Raise CorruptMessage if an unreadable end is damage, not an incomplete write."""
        next_offset, newer = segment.next_offset, self.segments.after(segment)
        if next_offset >= self.whole_to:
            return
        if (
            next_offset < self.synced_to
            or (newer is not None and newer.size_bytes)
            or is_followed_by_a_batch(segment.file, segment.size_bytes, end, next_offset)
        ):
            at = f"{segment.file.path}: the batch at {segment.size_bytes}"
            raise CorruptMessage(f"{at}, for offset {next_offset}, is not what was written")


def _open_segments(
    directory: Path, config: LogConfig, log_start_offset: int, now_ms: int
) -> Steps[SegmentList]:
    segments = SegmentList()
    stems: dict[str, set[str]] = {suffix: set() for suffix in SUFFIXES}
    for name in os.listdir(directory):
        stem, suffix = os.path.splitext(name)
        if suffix in stems and stem.isdecimal():
            stems[suffix].add(stem)
        elif suffix == TEMPORARY_SUFFIX:  # incomplete because the process was killed
            (directory / name).unlink()
    logs = stems.pop(".log")
    for suffix, found in stems.items():
        for stem in found - logs:
            (directory / (stem + suffix)).unlink()  # an index without its .log file
    opened: list[Segment] = []
    for base_offset in sorted(map(int, logs)) or [log_start_offset]:
        opened.append(Segment(directory, base_offset, config, now_ms))
        yield
    segments.add(*opened)
    return segments


def _first_damaged(segments: SegmentList, *, until: Segment) -> Steps[Segment | None]:
    """Return the oldest segment before `until` with inconsistent indexes, or None."""
    for segment in segments:
        if segment is until:
            break
        try:
            yield from segment.checking()
        except (CorruptIndex, CorruptTransactionIndex):
            return segment
        yield
    return None


def _belongs(segment: Segment, header: BatchHeader) -> bool:
    """Return whether a batch's offsets, which no CRC protects, may follow those in the segment."""
    return (
        header.base_offset >= segment.next_offset
        and header.last_offset_delta >= 0
        and header.last_offset - segment.base_offset <= INT_MAX
    )


def _check_topic(directory: Path, topic_id: bytes, may_be_unsynced: bool) -> None:
    """Check that the directory belongs to this topic, or assign the directory to this topic.

    A flush syncs the metadata with the first batches. If a power failure left batches without
    metadata, none of the batches was synced, and they may be those of a deleted topic of the same
    name.
    """
    try:
        known = PartitionMetadata.read(directory)
    except CorruptCheckpoint as problem:
        if _has_damaged_metadata(directory, topic_id):
            raise CorruptMessage(str(problem)) from problem
        known = None  # created just before a power failure that left nothing, or damaged since
    if known is None and may_be_unsynced and _has_batches(directory):
        raise InconsistentTopicId(f"{directory} has no topic id, and was never synced")
    if known is None:
        PartitionMetadata(topic_id).write(directory, fsync=False)
    elif known.topic_id != topic_id:
        raise InconsistentTopicId(
            f"{directory} belongs to topic id {encode_uuid(known.topic_id)}, "
            f"not to {encode_uuid(topic_id)}"
        )


def _has_damaged_metadata(directory: Path, topic_id: bytes) -> bool:
    """Return whether a directory with batches has unreadable metadata, perhaps of another topic.

    A power failure may leave an unsynced file missing, filled with zeros, or partial. Metadata that
    differs from this topic's in a few bytes counts as damaged metadata of this topic.
    """
    content = (directory / PARTITION_METADATA).read_bytes()
    is_whole = len(content) >= PARTITION_METADATA_BYTES_MIN and any(content)
    is_of_another = is_whole and not PartitionMetadata(topic_id).is_nearly(content)
    return is_of_another and _has_batches(directory)


def _has_batches(directory: Path) -> bool:
    return any(path.stat().st_size for path in directory.glob("*.log"))
