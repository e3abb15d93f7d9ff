"""Opening a log: trust what was flushed, check the rest, make again what follows from it.

After a clean shutdown every file is as it should be and only the ends are looked at. After any
other end the segments from the recovery point on are read whole: the first batch that is torn or
has a wrong CRC ends the log, and indexes, leader epochs, and producer state of that part are made
anew from its batches. Below the recovery point an index that is missing or cannot be right is
made anew too.

Producer state is the newest snapshot below plus a replay of the headers after it. A snapshot
holds only the last batch of a producer, so after a clean start the windows of five are filled up
from the end of the log: Kafka does not, and a retry that crosses a clean restart fails there.
"""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ..wire.control_record import ControlType, decode_marker
from ..wire.errors import CorruptMessage, InconsistentTopicId, InvalidRecord
from ..wire.record_batch import CONTROL_BIT, BatchHeader
from .checkpoint import CorruptCheckpoint, LeaderEpochCheckpoint, PartitionMetadata, encode_uuid
from .index import CorruptIndex
from .leader_epochs import EpochStart, LeaderEpochs
from .log_config import INT_MAX, LogConfig
from .log_file import Buffer, scan_batches, scan_headers
from .open_transactions import CompletedTransaction
from .producer_state import ProducerStateTable
from .segment import SUFFIXES, Segment
from .segment_list import SegmentList
from .segment_swap import finish_swaps
from .snapshot_files import SnapshotFiles
from .transaction_index import AbortedTransaction, CorruptTransactionIndex

# How far back the windows of five batches are refilled: more than five batches in flight of
# several producers at once. A producer whose last batches lie further back has no retry waiting.
REFILL_BYTES_MAX = 8 << 20


class LoadedLog(NamedTuple):
    """What recovery found: the parts of an open log, all of them up to `log_end_offset`."""

    segments: SegmentList
    snapshots: SnapshotFiles
    producer_state: ProducerStateTable
    leader_epochs: LeaderEpochs
    log_start_offset: int
    log_end_offset: int


def load_log(
    directory: Path,
    topic_id: bytes,
    config: LogConfig,
    *,
    log_start_offset: int,
    recovery_point: int,
    clean_shutdown: bool,
    machine_restarted: bool,
    now_ms: int,
) -> LoadedLog:
    """Open the files of a partition, creating or mending what is needed; see the top.

    machine_restarted: it was without power since, so that more than the end may be missing.

    Raises OSError, InconsistentTopicId when the directory is another topic's, and CorruptMessage
    when a batch that was once synced cannot be read any more.
    """
    directory.mkdir(parents=True, exist_ok=True)
    _check_topic(directory, topic_id)
    finish_swaps(directory)
    segments = _open_segments(directory, config, log_start_offset, now_ms)
    snapshots = SnapshotFiles(directory)
    if machine_restarted and not clean_shutdown:
        snapshots.remove_unreadable()
    dirty_from = _first_to_recover(segments, recovery_point, clean_shutdown)
    log_start_offset = max(log_start_offset, segments.first.base_offset)
    state_end = segments.active.next_offset if dirty_from is None else dirty_from.base_offset
    epochs, saved_epochs = _load_epochs(directory, segments, log_start_offset, state_end)
    producers = load_producers(segments, snapshots, state_end, now_ms)
    if dirty_from is not None:
        epochs.truncate_from_end(dirty_from.base_offset)
        _recover_from(
            dirty_from, segments, producers, epochs, now_ms, machine_restarted=machine_restarted
        )
    if segments.active.next_offset < log_start_offset:
        # What DeleteRecords left over is gone from the disk: nothing of this log is valid.
        for segment in segments:
            segments.remove(segment)
            segment.delete()
        segments.add(Segment(directory, log_start_offset, config, now_ms))
        producers.clear(log_start_offset)
        epochs.clear()
    log_end_offset = segments.active.next_offset
    epochs.truncate_from_end(log_end_offset)
    epochs.truncate_from_start(log_start_offset)
    if epochs.entries != saved_epochs:
        LeaderEpochCheckpoint(directory).write(epochs.entries, fsync=False)
    producers.skip_to(log_end_offset)
    if log_end_offset > log_start_offset and log_end_offset not in snapshots.offsets:
        snapshots.write(log_end_offset, producers.snapshot_entries())
    bases = {segment.base_offset for segment in segments}
    snapshots.remove([offset for offset in snapshots.offsets[:-1] if offset not in bases])
    snapshots.remove_above(log_end_offset)
    return LoadedLog(segments, snapshots, producers, epochs, log_start_offset, log_end_offset)


def load_producers(
    segments: SegmentList, snapshots: SnapshotFiles, end_offset: int, now_ms: int
) -> ProducerStateTable:
    """Producer state as it is at `end_offset`: the newest snapshot, and the batches after it.

    A snapshot below the log start serves as well (Kafka drops it): what a producer wrote last is
    worth knowing after its records were deleted.
    """
    producers = ProducerStateTable(min(segments.first.base_offset, end_offset))
    newest = snapshots.newest(at_most=end_offset)
    if newest is not None:
        producers.load_entries(newest[1], newest[0], now_ms)
        if len(producers):
            producers.refill_windows(_headers_before(segments, newest[0]))
    for segment, position, header in _headers_between(segments, producers.end_offset, end_offset):
        completed = take_in(
            producers,
            header,
            header.base_offset,
            partial(segment.file.read, position, header.size_bytes),
            now_ms,
        )
        if completed is not None:
            producers.complete_transaction(completed)
    producers.skip_to(end_offset)
    return producers


def take_in(
    producers: ProducerStateTable,
    header: BatchHeader,
    base_offset: int,
    batch: Buffer | Callable[[], Buffer],
    now_ms: int,
) -> CompletedTransaction | None:
    """Tell the producer state of a batch that lies in the log; `batch` is read for a marker only.

    A control batch without records is what compaction left of a marker: it says nothing any more.
    Returns the transaction that it ended, which the caller completes after it has noted an
    aborted one in the transaction index.
    """
    if not header.attributes & CONTROL_BIT:
        producers.append(header, base_offset, now_ms)
        return None
    if header.record_count == 0:
        producers.skip_to(base_offset + header.last_offset_delta + 1)
        return None
    control_type, coordinator_epoch = decode_marker(batch() if callable(batch) else batch)
    return producers.append_marker(
        header.producer_id,
        header.producer_epoch,
        coordinator_epoch,
        is_aborted=control_type is ControlType.ABORT,
        offset=base_offset,
        timestamp=header.max_timestamp,
        now_ms=now_ms,
    )


def assign_epoch(epochs: LeaderEpochs, header: BatchHeader) -> bool:
    """Note the leader epoch of a batch in the log if it is a new one; True if it was."""
    latest = epochs.latest_epoch
    if header.partition_leader_epoch > (-1 if latest is None else latest):
        return epochs.assign(header.partition_leader_epoch, header.base_offset)
    return False


def aborted_entry(completed: CompletedTransaction) -> AbortedTransaction:
    """What the transaction index keeps of an aborted transaction."""
    return AbortedTransaction(
        completed.producer_id,
        completed.first_offset,
        completed.last_offset,
        completed.last_stable_offset,
    )


def _open_segments(
    directory: Path, config: LogConfig, log_start_offset: int, now_ms: int
) -> SegmentList:
    segments = SegmentList()
    stems: dict[str, set[str]] = {suffix: set() for suffix in SUFFIXES}
    for name in os.listdir(directory):
        stem, suffix = os.path.splitext(name)
        if suffix in stems and stem.isdecimal():
            stems[suffix].add(stem)
    logs = stems.pop(".log")
    for suffix, found in stems.items():
        for stem in found - logs:
            (directory / (stem + suffix)).unlink()  # an index without its .log file
    for base_offset in sorted(map(int, logs)) or [log_start_offset]:
        segments.add(Segment(directory, base_offset, config, now_ms))
    return segments


def _first_to_recover(
    segments: SegmentList, recovery_point: int, clean_shutdown: bool
) -> Segment | None:
    """The oldest segment that must be read whole, None if all can be trusted."""
    dirty_from = None
    if not clean_shutdown:
        dirty_from = segments.floor(recovery_point) or segments.first
    for segment in segments:
        if segment is dirty_from:
            break
        try:
            segment.check()
            if segment is segments.active:
                segment.resume()
        except (CorruptIndex, CorruptTransactionIndex, CorruptMessage):
            return segment
    return dirty_from


def _recover_from(
    dirty_from: Segment,
    segments: SegmentList,
    producers: ProducerStateTable,
    epochs: LeaderEpochs,
    now_ms: int,
    *,
    machine_restarted: bool,
) -> None:
    """Read a segment and all newer ones; end the log before the first batch that is not whole.

    A power cut can take the end of a segment, exactly between two batches, and leave a newer one.
    So the log then ends before a gap between segments, too. A gap that compaction has made (maybe
    before the topic's policy changed) cannot be told from it: what follows is fetched again.
    """
    is_cut = False
    end_offset = dirty_from.base_offset
    for segment in segments.from_floor(dirty_from.base_offset):
        is_cut |= segment.base_offset > end_offset and machine_restarted
        if is_cut or segment.base_offset < end_offset:
            segments.remove(segment)
            segment.delete()
            continue
        end = segment.size_bytes
        segment.start_over()
        try:
            for _, header, batch in scan_batches(segment.file, 0, end):
                if not _belongs(segment, header):
                    break
                segment.add_batch(header.size_bytes, header.last_offset, header.max_timestamp)
                assign_epoch(epochs, header)
                completed = take_in(producers, header, header.base_offset, batch, now_ms)
                if completed is not None:
                    if completed.is_aborted:
                        segment.transaction_index.append(aborted_entry(completed))
                    producers.complete_transaction(completed)
        except (CorruptMessage, InvalidRecord):
            pass  # torn, garbled, or a control batch that is no marker: the log ends before it
        end_offset = segment.next_offset
        if segment.size_bytes < end:
            segment.file.truncate(segment.size_bytes)
            is_cut = True
        if segments.after(segment) is not None and not is_cut:
            segment.become_inactive()


def _belongs(segment: Segment, header: BatchHeader) -> bool:
    """Whether the offsets of a batch, which no CRC covers, can be the next ones of a segment."""
    return (
        header.base_offset >= segment.next_offset
        and header.last_offset_delta >= 0
        and header.last_offset - segment.base_offset <= INT_MAX
    )


def _headers_between(
    segments: SegmentList, start_offset: int, end_offset: int
) -> Iterator[tuple[Segment, int, BatchHeader]]:
    """Every batch that begins in [start_offset, end_offset): (segment, position, header)."""
    for segment in segments.from_floor(start_offset):
        if segment.base_offset >= end_offset:
            return
        found = segment.position_of(start_offset)
        if found is None:
            continue
        for position, header in scan_headers(segment.file, found[0], segment.size_bytes):
            if header.base_offset >= end_offset:
                return
            if header.base_offset >= start_offset:
                yield segment, position, header


def _headers_before(segments: SegmentList, end_offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """The data batches with producer ids in the last REFILL_BYTES_MAX before `end_offset`.

    Oldest first, as (base offset, header).
    """
    ranges = []
    budget = REFILL_BYTES_MAX
    for segment in reversed(list(segments)):
        if segment.base_offset < end_offset and budget > 0:
            end = segment.size_bytes
            found = segment.position_of(end_offset)
            if found is not None:
                end = found[0]
            ranges.append((segment, segment.indexed_position_before(end - budget), end))
            budget -= end
    for segment, start, end in reversed(ranges):
        for _, header in scan_headers(segment.file, start, end):
            if header.producer_id >= 0 and not header.attributes & CONTROL_BIT:
                yield header.base_offset, header


def _check_topic(directory: Path, topic_id: bytes) -> None:
    """The directory is this topic's, or becomes so."""
    try:
        known = PartitionMetadata.read(directory)
    except CorruptCheckpoint:  # created a moment before the power went; nothing was synced yet
        known = None
    if known is None:
        PartitionMetadata(topic_id).write(directory, fsync=False)
    elif known.topic_id != topic_id:
        raise InconsistentTopicId(
            f"{directory} belongs to topic id {encode_uuid(known.topic_id)}, "
            f"not to {encode_uuid(topic_id)}"
        )


def _load_epochs(
    directory: Path, segments: SegmentList, log_start_offset: int, end_offset: int
) -> tuple[LeaderEpochs, tuple[EpochStart, ...]]:
    """The leader epochs below `end_offset`, and what the checkpoint says.

    What the checkpoint lacks at the beginning is read from the batches: it was lost, or it was
    cut for a new log start that was not written down itself.
    """
    try:
        saved = tuple(LeaderEpochCheckpoint(directory).read())
    except CorruptCheckpoint:
        saved = ()
    epochs = LeaderEpochs()
    known_from = min(saved[0].start_offset, end_offset) if saved else end_offset
    if known_from > log_start_offset:
        for _, _, header in _headers_between(segments, segments.first.base_offset, known_from):
            assign_epoch(epochs, header)
    for epoch, start_offset in saved:
        epochs.assign(epoch, start_offset)
    return epochs, saved
