"""The part of a log that is on the disk, and not only in the page cache.

The recovery point is the offset below which everything was synced, and below which recovery trusts
the log. Everything here runs on the log's own thread, except for `FlushJob`, which waits for the
disk.

Of the active segment only the .log file is synced, because recovery reads all of it, and rebuilds
its indexes. The indexes of a closed segment are synced by the next flush.
"""

from pathlib import Path

from ..runtime.c_calls import attribute_of
from ..runtime.fault_point import FaultPoint
from .checkpoint import LEADER_EPOCHS, PARTITION_METADATA
from .flush_job import FlushJob, OpenPath, RecoveryPoint, open_existing
from .producers.snapshot_files import SnapshotFiles
from .segments.segment import Segment
from .segments.segment_list import SegmentList

SEGMENTS_A_JOB = 32  # take about 1 ms


class Durability:
    """The recovery point of a log, and the state that decides when it may rise."""

    __slots__ = (
        "_closed_end",
        "_cut_names",
        "_fault_point",
        "_names_changed",
        "_names_synced",
        "_point",
        "unsynced_since_ms",
    )

    def __init__(
        self, recovery_point: int, fault_point: FaultPoint, *, is_synced: bool = False
    ) -> None:
        """Begin at a recovery point.

        is_synced: the log was closed, and is unchanged since.
        """
        self._point = RecoveryPoint(recovery_point)
        # The log end up to which the indexes of the active segment are also on the disk.
        self._closed_end = recovery_point if is_synced else -1
        self._fault_point = fault_point
        # The number of changes of file names, of those already synced, and at the last truncation.
        self._names_changed = 1
        self._names_synced = int(is_synced)
        self._cut_names = 0
        # The time of the first append since the last flush, or None if unknown.
        self.unsynced_since_ms: int | None = None

    # Everything below this offset is on the disk.
    recovery_point: int = attribute_of("_point.offset")

    @property
    def since_cut(self) -> object:
        """Return an object that each truncation replaces, to detect truncations."""
        return self._point

    @property
    def is_cut_unsynced(self) -> bool:
        """Return whether the last truncation is not yet synced, so that appends must wait."""
        return self._cut_names > self._names_synced

    def is_as_closed(self, log_end_offset: int, snapshots: SnapshotFiles) -> bool:
        """Return whether no file differs from its synced state at the last close of the log.

        The entry that a close adds to the last time index does not count, since each start removes
        that entry.
        """
        return (
            self._point.offset == self._closed_end == log_end_offset
            and self._names_synced == self._names_changed
            and not snapshots.unsynced
        )

    def closed(self, log_end_offset: int) -> None:
        """Record that a close has synced the log up to `log_end_offset`, and the last indexes."""
        self._closed_end = log_end_offset

    def names_changed(self) -> None:
        """Record that files were added, removed or replaced. The next flush syncs the directory."""
        self._names_changed += 1

    def cut(self, end_offset: int) -> None:
        """Record a truncation to `end_offset`. The result of a running flush is then ignored."""
        self._point = RecoveryPoint(min(self._point.offset, end_offset))
        self._closed_end = -1
        self._names_changed += 1
        self._cut_names = self._names_changed

    def job(
        self,
        directory: Path,
        segments: SegmentList,
        snapshots: SnapshotFiles,
        log_end_offset: int,
        *,
        is_last: bool,
    ) -> FlushJob:
        """Return the job that syncs everything below `log_end_offset`, or raise OSError.

        If many segments must be synced, the job has only the oldest, because all its files are
        opened here. is_last: the log is being closed, and the next start will also trust the last
        indexes.
        """
        unsynced = self._unsynced(segments)
        unsynced, later = unsynced[:SEGMENTS_A_JOB], unsynced[SEGMENTS_A_JOB:]
        written = snapshots.unsynced[:SEGMENTS_A_JOB]
        is_whole = not later and len(written) == len(snapshots.unsynced)
        paths = [
            path
            for segment in unsynced
            if is_last or segment is not segments.active
            for path in segment.paths()[1:]
        ]
        directories = []
        if self._names_changed != self._names_synced:
            paths += [directory / LEADER_EPOCHS, directory / PARTITION_METADATA]
            directories = [
                OpenPath(each, is_directory=True) for each in (directory, directory.parent)
            ]
        files = open_existing([*paths, *written])
        del snapshots.unsynced[: len(written)]
        self.unsynced_since_ms = None
        return FlushJob(
            directory=directory,
            logs=[segment.file for segment in unsynced],
            files=files,
            directories=directories,
            point=self._point,
            end_offset=later[0].base_offset if later else log_end_offset,
            names_changed=self._names_changed if is_whole else self._names_synced,
            is_whole=is_whole,
            is_cut=self.is_cut_unsynced,
            fault_point=self._fault_point,
        )

    def needs_more_jobs(self, segments: SegmentList) -> bool:
        """Return whether one job cannot include all segments to be synced."""
        return len(self._unsynced(segments)) > SEGMENTS_A_JOB

    def _unsynced(self, segments: SegmentList) -> tuple[Segment, ...]:
        return segments.from_floor(max(self._point.offset - 1, 0))

    def flushed(self, job: FlushJob) -> None:
        job.point.offset = max(job.point.offset, job.end_offset)
        self._names_synced = max(self._names_synced, job.names_changed)
