"""What of a log is on the disk, and not only in the page cache.

The recovery point is the offset below which everything was synced; recovery trusts what lies
below it. `flush` runs in an executor thread while the event loop goes on appending, rolling, even
truncating: it works on the segments as they were when it began, files stay open while it holds
them, and a cut puts another `_Point` in place, so that a flush which began before the cut raises
a point that nobody looks at any more. Hence no lock.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .checkpoint import LEADER_EPOCHS, PARTITION_METADATA, FaultPoint, sync_directory
from .log_config import LONG_MAX, LogConfig
from .segment_list import SegmentList
from .snapshot_files import SnapshotFiles

FLUSH_FAILED = "flush-failed"


class _Point:
    __slots__ = ("offset",)

    def __init__(self, offset: int) -> None:
        self.offset = offset


class Durability:
    """The recovery point of a log, and when to move it."""

    __slots__ = ("_fault_point", "_names_changed", "_names_synced", "_point", "unsynced_since_ms")

    def __init__(self, recovery_point: int, fault_point: FaultPoint) -> None:
        self._point = _Point(recovery_point)
        self._fault_point = fault_point
        # How often files came or went, and which of these changes were synced. The owner's thread
        # writes the first, a flush the second.
        self._names_changed = 1
        self._names_synced = 0
        # When the first append since the last flush came; None when that is not known.
        self.unsynced_since_ms: int | None = None

    @property
    def recovery_point(self) -> int:
        """Everything below this offset is on the disk."""
        return self._point.offset

    def is_due(
        self, segments: SegmentList, log_end_offset: int, config: LogConfig, now_ms: int
    ) -> bool:
        """Whether to flush: flush.messages, flush.ms, or a segment that was closed (as Kafka)."""
        unsynced = log_end_offset - self._point.offset
        if unsynced <= 0:
            return False
        if unsynced >= config.flush_messages or segments.active.base_offset > self._point.offset:
            return True
        if config.flush_ms == LONG_MAX:
            return False
        since_ms = self.unsynced_since_ms
        return since_ms is None or now_ms - since_ms >= config.flush_ms

    def names_changed(self) -> None:
        """Files came or went, or small ones were replaced: the next flush syncs the directory."""
        self._names_changed += 1

    def flush(
        self,
        directory: Path,
        segments: SegmentList,
        snapshots: SnapshotFiles,
        log_end_offset: int,
    ) -> None:
        """Bring everything below `log_end_offset` to the disk (blocks). Raises OSError."""
        point = self._point
        self.unsynced_since_ms = None
        names_changed = self._names_changed
        self._fault_point("log.flush.before-fsync")
        for segment in segments.from_floor(point.offset):
            segment.flush()
        snapshots.flush()
        if names_changed != self._names_synced:
            for name in (LEADER_EPOCHS, PARTITION_METADATA):
                _sync_file(directory / name)
            sync_directory(directory)
            sync_directory(directory.parent)
            self._names_synced = names_changed
        self._fault_point("log.flush.after-fsync")
        point.offset = max(point.offset, log_end_offset)

    def cut(self, end_offset: int) -> None:
        """The log was cut to `end_offset`; a flush under way no longer counts."""
        self._point = _Point(min(self._point.offset, end_offset))
        self.names_changed()


@contextmanager
def noting_failed_flush(directory: Path) -> Iterator[None]:
    """Leave a mark where a sync fails: the kernel may drop such pages, and says so only once.

    Recovery then does not take a write of the killed process for something that is still there.
    """
    try:
        yield
    except OSError:
        with suppress(OSError):
            os.close(os.open(directory / FLUSH_FAILED, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
        raise


def _sync_file(path: Path) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
