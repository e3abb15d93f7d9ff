"""The removal of a log's oldest records by DeleteRecords, retention.ms and retention.bytes.

First the log start offset rises, then segments below it are removed from the log, and their files
are deleted after file.delete.delay.ms.
"""

import logging
from collections.abc import Sequence

from ..runtime.steps import Steps, run_to_end
from ..wire.errors import OffsetOutOfRange
from .disk_guard import disk_errors
from .local_log import LocalLog
from .segments.retention import segments_past_retention
from .segments.segment import Segment

logger = logging.getLogger(__name__)


class LogRetention:
    """The methods of a log that remove its oldest segments."""

    __slots__ = ("_log",)

    def __init__(self, log: LocalLog) -> None:
        self._log = log

    def advance_log_start_offset(self, offset: int) -> None:
        """Delete the records below `offset`, for DeleteRecords or the leader's log start offset.

        The next `delete_old_segments` removes their segments. Raises OffsetOutOfRange above the
        high watermark. Does nothing below the log start offset.
        """
        log = self._log
        if offset > log.high_watermark:
            raise OffsetOutOfRange(
                f"Cannot move the log start of {log.directory.name} to {offset}, above "
                f"the high watermark {log.high_watermark}"
            )
        if offset > log.log_start_offset:
            with log.disk:
                log.log_start_offset = offset
                if log.leader_epochs.truncate_from_start(offset):
                    log.epochs_changed()

    def delete_old_segments(self, now_ms: int) -> int:
        """Remove old segments in one step (see `deleting_old_segments`)."""
        return run_to_end(self.deleting_old_segments(now_ms))

    def deleting_old_segments(self, now_ms: int) -> Steps[int]:
        """Remove segments by retention, or below the log start offset. Return how many.

        Each step examines the segments anew. `purge_deleted_files` later deletes the files.
        """
        log = self._log
        # Fixed, since an endless stream of old records would never end.
        count, until = 0, log.high_watermark
        while True:
            log.now_ms = now_ms
            with log.disk:
                past = segments_past_retention(
                    log.segments,
                    log.config,
                    log_start_offset=log.log_start_offset,
                    high_watermark=min(log.high_watermark, until),
                    log_end_offset=log.log_end_offset,
                    now_ms=now_ms,
                    advanced_since_ms=log.advanced_since_ms,
                )
                if not past:
                    break
                if past[-1] is log.segments.active:
                    run_to_end(log.rebuilding())
                    log.roll(log.log_end_offset)
                oldest_kept = log.segments.after(past[-1])
                assert oldest_kept is not None
                self.advance_log_start_offset(oldest_kept.base_offset)
                self._drop(past)
            count += len(past)
            yield
        if count:
            logger.info(
                "%s: retention removed %d segments, and the log now starts at offset %d",
                log.directory.name,
                count,
                log.log_start_offset,
            )
        return count

    def _drop(self, segments: Sequence[Segment]) -> None:
        """Remove the oldest segments from the log. Their files are deleted later."""
        log = self._log
        due_ms = log.now_ms + log.config.file_delete_delay_ms
        for segment in segments:
            with log.disk.retriable:
                log.deleted.retire(segment, due_ms)
            log.fault_point("log.delete.after-rename")
            log.segments.remove(segment)
            log.snapshots.remove([segment.base_offset])
            log.durability.names_changed()

    @property
    def has_deleted_files(self) -> bool:
        """Return whether `purge_deleted_files` has files to delete, now or after their delay."""
        return bool(self._log.deleted)

    def purge_deleted_files(self, now_ms: int) -> int:
        """Delete files of removed segments after file.delete.delay.ms. Return how many.

        Deleting a large file blocks, so call this method in an executor. A file that cannot be
        deleted is retried by the next call. The log does not need the file any more.
        """
        with disk_errors(f"A dropped segment of {self._log.directory.name}"):
            return self._log.deleted.unlink_due(now_ms)
