"""The recovery of leader epochs from the checkpoint and from the batches of a log."""

import logging
from contextlib import suppress
from pathlib import Path

from ..runtime.steps import Steps
from ..wire.record_batch import BatchHeader
from .checkpoint import CorruptCheckpoint, LeaderEpochCheckpoint
from .corrupt_file import UNREADABLE
from .leader_epochs import EpochStart, LeaderEpochs
from .producers.recovery import walk_headers
from .segments.segment import Segment
from .segments.segment_list import SegmentList

logger = logging.getLogger(__name__)


def _header_at(segment: Segment, offset: int) -> BatchHeader | None:
    """Return the header of the batch that holds `offset`, or of the next batch after a gap."""
    headers = segment.headers_near(offset)
    return next((header for _, header in headers if header.last_offset >= offset), None)


def _are_in_the_log(saved: tuple[EpochStart, ...], segments: SegmentList, end_offset: int) -> bool:
    """Return whether the epochs of a checkpoint, which has no checksum, match the batches."""
    with suppress(*UNREADABLE):  # other checks report the damage
        for number, (epoch, start_offset) in enumerate(saved):
            if start_offset >= end_offset:
                break
            for segment in segments.from_floor(start_offset):
                header = _header_at(segment, start_offset)
                if header is None:
                    continue
                found, base_offset = header.partition_leader_epoch, header.base_offset
                if found < epoch or (found > epoch and base_offset <= start_offset):
                    return False
                if base_offset < start_offset and number:
                    return False
                break
    return True


def assign_epoch(epochs: LeaderEpochs, header: BatchHeader) -> bool:
    """Record the leader epoch of a batch that is in the log. Return whether the epoch is new."""
    latest = epochs.latest_epoch
    if header.partition_leader_epoch > (-1 if latest is None else latest):
        return epochs.assign(header.partition_leader_epoch, header.base_offset)
    return False


def load_epochs(
    directory: Path, segments: SegmentList, log_start_offset: int, end_offset: int
) -> Steps[tuple[LeaderEpochs, tuple[EpochStart, ...]]]:
    """Load the leader epochs. Return them with the checkpoint's entries.

    All entries of the checkpoint are included, even those above `end_offset`. Epochs below its
    first entry, and below `end_offset`, are read from the batches. The checkpoint lacks them if it
    was lost, or was shortened for a log start offset that was not saved.
    """
    saved: tuple[EpochStart, ...] = ()
    with suppress(CorruptCheckpoint):
        saved = tuple(LeaderEpochCheckpoint(directory).read())
    if not _are_in_the_log(saved, segments, end_offset):
        logger.warning("%s: the leader epochs are rebuilt from the log", directory)
        saved = ()
    epochs = LeaderEpochs()
    known_from = min(saved[0].start_offset, end_offset) if saved else end_offset
    if known_from > log_start_offset:
        yield from walk_headers(
            segments,
            segments.first.base_offset,
            known_from,
            lambda segment, position, header: assign_epoch(epochs, header),
        )
    for epoch, start_offset in saved:
        epochs.assign(epoch, start_offset)
    return epochs, saved
