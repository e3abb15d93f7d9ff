"""Leader epochs when a log is opened: from the checkpoint, and from the batches that bear them."""

from contextlib import suppress
from pathlib import Path

from ..wire.record_batch import BatchHeader
from ..wire.steps import Steps
from .checkpoint import CorruptCheckpoint, LeaderEpochCheckpoint
from .leader_epochs import EpochStart, LeaderEpochs
from .producers.recovery import walk_headers
from .segments.segment_list import SegmentList


def assign_epoch(epochs: LeaderEpochs, header: BatchHeader) -> bool:
    """Note the leader epoch of a batch in the log if it is a new one; True if it was."""
    latest = epochs.latest_epoch
    if header.partition_leader_epoch > (-1 if latest is None else latest):
        return epochs.assign(header.partition_leader_epoch, header.base_offset)
    return False


def load_epochs(
    directory: Path, segments: SegmentList, log_start_offset: int, end_offset: int
) -> Steps[tuple[LeaderEpochs, tuple[EpochStart, ...]]]:
    """The leader epochs below `end_offset`, and what the checkpoint says.

    What the checkpoint lacks at the beginning is read from the batches: it was lost, or it was
    cut for a new log start that was not written down itself.
    """
    saved: tuple[EpochStart, ...] = ()
    with suppress(CorruptCheckpoint):
        saved = tuple(LeaderEpochCheckpoint(directory).read())
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
