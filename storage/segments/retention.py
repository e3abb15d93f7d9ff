"""The choice of segments that retention deletes, and the removal of files from the disk."""

from collections import deque
from contextlib import suppress
from pathlib import Path

from ..disk_guard import OUT_OF_RESOURCES
from ..log_config import LogConfig
from .advanced_clock import AdvancedSince, never_advanced
from .index import NO_TIMESTAMP
from .segment import Segment
from .segment_list import SegmentList

DELETED_SUFFIX = ".deleted"
SEGMENTS_AT_ONCE = 4  # about 0.5 ms, mostly for renames


def segments_past_retention(
    segments: SegmentList,
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    now_ms: int,
    advanced_since_ms: AdvancedSince = never_advanced,
) -> list[Segment]:
    """Return the oldest few segments to delete, oldest first.

    The result may include the active segment, unless that is empty. A segment is deleted if all of
    it is below the log start offset. With cleanup.policy=delete, it is also deleted if the log
    without it still has retention.bytes, or if its newest record is too old. A segment that reaches
    above the high watermark is never deleted, because its records are not committed yet.
    """
    deletable: list[Segment] = []
    excess_bytes = segments.size_bytes - config.retention_bytes
    by_size = config.is_deleted_by_retention and config.retention_bytes >= 0
    by_age = config.is_deleted_by_retention and config.retention_ms >= 0
    for segment in segments:
        newer = segments.after(segment)
        end_offset = log_end_offset if newer is None else newer.base_offset
        if high_watermark < end_offset or (newer is None and segment.size_bytes == 0):
            break
        is_below_start = newer is not None and newer.base_offset <= log_start_offset
        is_too_much = by_size and excess_bytes >= segment.size_bytes
        if not (
            is_below_start
            or is_too_much
            or (by_age and _age_ms(segment, now_ms, advanced_since_ms) > config.retention_ms)
        ):
            break
        excess_bytes -= segment.size_bytes
        deletable.append(segment)
        if len(deletable) == SEGMENTS_AT_ONCE:
            break
    return deletable


def _age_ms(segment: Segment, now_ms: int, advanced_since_ms: AdvancedSince) -> int:
    """Return the age of a segment's newest record.

    Advances of the clock since the record's timestamp are added. The timestamp is the same on every
    replica, even on a replica that copies the record later. For a record with a future timestamp
    the advances since its append count, as given by the file's modification time.
    """
    newest_ms = segment.max_timestamp
    if newest_ms == NO_TIMESTAMP:  # records without timestamps use the file's time
        newest_ms = segment.last_modified_ms()
    if not advanced_since_ms(0):
        return now_ms - newest_ms
    written_ms = newest_ms if newest_ms <= now_ms else segment.last_modified_ms()
    return now_ms - newest_ms + advanced_since_ms(written_ms)


class DeletedFiles:
    """Files that were removed from the log and wait for their deletion (file.delete.delay.ms)."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Path]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def retire(self, segment: Segment, due_ms: int) -> None:
        """Rename a segment's files to .deleted, so that a restart ignores them.

        The .log file is renamed first, which removes the segment, and the others follow. If that
        rename fails for lack of space, nothing has changed.
        """
        log, *indexes = segment.paths()
        self._rename(log, due_ms)
        for path in indexes:
            try:
                self._rename(path, due_ms)
            except OSError as problem:
                if problem.errno not in OUT_OF_RESOURCES:
                    raise
                path.unlink(missing_ok=True)

    def _rename(self, path: Path, due_ms: int) -> None:
        retired = path.with_name(path.name + DELETED_SUFFIX)
        with suppress(FileNotFoundError):  # a segment without a .txnindex
            path.rename(retired)
            self._waiting.append((due_ms, retired))

    def unlink_due(self, now_ms: int) -> int:
        """Delete the files after their delay. Return how many."""
        count = 0
        while self._waiting and self._waiting[0][0] <= now_ms:
            self._waiting[0][1].unlink(missing_ok=True)  # retried by the next call
            self._waiting.popleft()
            count += 1
        return count
