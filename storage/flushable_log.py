"""What of a log is on the disk: the side that flushes and retries see, and those who acknowledge.

A flush is a job that the log makes, that any thread runs, and that the log takes note of. It is
*owed* while it must come before an acknowledgement: by flush.messages, or because the log was cut.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from .disk_guard import DiskGuard
from .flush_job import FlushJob
from .log_config import LogConfig
from .log_durability import Durability
from .producers.snapshot_files import SnapshotFiles
from .segments.segment_list import SegmentList


class FlushableLog:
    """The base of LocalLog, which sets the attributes."""

    directory: Path
    config: LogConfig
    segments: SegmentList
    log_end_offset: int
    _snapshots: SnapshotFiles
    _durability: Durability
    _disk: DiskGuard

    @property
    def is_failed(self) -> bool:
        """Whether the disk has failed this log."""
        return self._disk.failure is not None

    def check(self) -> None:
        """Raise KafkaStorageError if the disk has failed this log."""
        self._disk.check()

    @property
    def on_failure(self) -> Callable[[], object]:
        """Called once, in any thread, when the disk fails this log."""
        return self._disk.on_failure

    @on_failure.setter
    def on_failure(self, told: Callable[[], object]) -> None:
        self._disk.on_failure = told

    @property
    def recovery_point(self) -> int:
        """Everything below this offset is on the disk, not only in the page cache."""
        return self._durability.recovery_point

    def flush_needed(self, now_ms: int) -> bool:
        """Whether to flush: flush.messages, flush.ms, or a segment has been closed."""
        return self._durability.is_due(self.segments, self.log_end_offset, self.config, now_ms)

    @property
    def is_flush_owed(self) -> bool:
        """Whether nothing more may be acknowledged before a flush (flush.messages, or a cut)."""
        unsynced = self.log_end_offset - self._durability.recovery_point
        return unsynced >= self.config.flush_messages or self._durability.is_cut_unsynced

    @property
    def own_end_offset(self) -> int:
        """Below it this copy may be relied on: the log end, unless a flush is owed."""
        return self.recovery_point if self.is_flush_owed else self.log_end_offset

    @property
    def is_cut_unsynced(self) -> bool:
        """Whether the log was cut, and nothing may grow over that before a flush.

        After a power cut both might be there in part: what was cut off, and what took its place.
        """
        return self._durability.is_cut_unsynced

    def flush_job(self, *, is_last: bool = False) -> FlushJob:
        """What to run in an executor to bring everything to the disk; then call `flushed`.

        Where the job is not whole another one has to follow.
        """
        with self._disk.retriable:
            return self._durability.job(
                self.directory, self.segments, self._snapshots, self.log_end_offset, is_last=is_last
            )

    def flushed(self, job: FlushJob, problem: OSError | None = None) -> None:
        """Take note of a job that has run: the recovery point rises, or the log has failed."""
        with self._disk:
            if problem is not None:
                raise problem
            self._durability.flushed(job)

    def flush(self, *, is_last: bool = False) -> None:
        """Bring everything below the log end to the disk, all at once (blocks)."""
        is_whole = False
        while not is_whole:
            job = self.flush_job(is_last=is_last)
            with self._disk:
                job.run()
            self.flushed(job)
            is_whole = job.is_whole

    @property
    def unwritten_bytes(self) -> int:
        """How much of the active segment the kernel was not told yet to write out."""
        active = self.segments.active
        return active.size_bytes - active.written_back_bytes

    def write_back_job(self) -> Callable[[], None]:
        """What lets the kernel begin to write the active segment out; promises nothing.

        Without it dirty pages pile up until the kernel stops a writer for a second, which looks
        like a death to the other brokers. It may block: run it in an executor.
        """
        active = self.segments.active
        start, active.written_back_bytes = active.written_back_bytes, active.size_bytes
        return partial(active.file.start_write_back, start, active.size_bytes - start)
