"""The flushes of one log, for the flushing tasks and for acknowledgements.

A log creates a flush job, any thread runs the job, and the log records its result. A flush is
*owed* if it must precede an acknowledgement, because of flush.messages or a truncation.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ..runtime.c_calls import attribute_of
from ..runtime.steps import run_to_end
from ..wire.errors import KafkaStorageError
from .flush_job import FlushJob
from .local_log import LocalLog
from .topic_configs import LONG_MAX


class LogFlushing:
    """The methods of a log that flush it to the disk."""

    __slots__ = ("_durability", "_log")

    def __init__(self, log: LocalLog) -> None:
        self._log = log
        self._durability = log.durability

    # Everything below this offset is on the disk, not only in the page cache.
    recovery_point: int = attribute_of("_durability.recovery_point")

    def is_needed(self, now_ms: int) -> bool:
        """Return whether to flush now, because of flush.messages, flush.ms, or a closed segment."""
        log, config, recovery_point = self._log, self._log.config, self.recovery_point
        unsynced = log.log_end_offset - recovery_point
        if unsynced <= 0:
            return False
        if unsynced >= config.flush_messages or log.segments.active.base_offset > recovery_point:
            return True
        if config.flush_ms == LONG_MAX:
            return False
        since_ms = self._durability.unsynced_since_ms
        return since_ms is None or now_ms - since_ms >= config.flush_ms

    @property
    def is_owed(self) -> bool:
        """Return whether the log must be flushed before the next acknowledgement."""
        unsynced = self._log.log_end_offset - self._durability.recovery_point
        return unsynced >= self._log.config.flush_messages or self._durability.is_cut_unsynced

    @property
    def own_end_offset(self) -> int:
        """Return the end offset up to which this replica may acknowledge records.

        It is the recovery point if a flush is owed, else the log end offset.
        """
        return self.recovery_point if self.is_owed else self._log.log_end_offset

    @property
    def is_cut_unsynced(self) -> bool:
        """Return whether the log was truncated and must be flushed before the next append.

        Otherwise a power failure could leave parts of both the removed and the new batches.
        """
        return self._durability.is_cut_unsynced

    def job(self, *, is_last: bool = False) -> FlushJob:
        """Return a job that syncs the log in an executor. Pass it to `flushed` afterwards.

        A job without `is_whole` must be followed by another. Recovery does not read epochs below
        the recovery point. Therefore, if the disk is too full to save the epochs, only a truncation
        whose files fit into one job is synced, and otherwise KafkaStorageError is raised.
        """
        log = self._log
        try:
            log.save_epochs()
        except KafkaStorageError:
            if not self.is_cut_unsynced or self._durability.needs_more_jobs(log.segments):
                raise
            job = self._job()
            job.end_offset = self.recovery_point
            return job
        return self._job(is_last=is_last)

    def _job(self, *, is_last: bool = False) -> FlushJob:
        log = self._log
        with log.disk.retriable:
            return self._durability.job(
                log.directory, log.segments, log.snapshots, log.log_end_offset, is_last=is_last
            )

    def flushed(self, job: FlushJob, problem: OSError | None = None) -> None:
        """Record the result of a job. It raises the recovery point. A problem fails the log."""
        with self._log.disk:
            if problem is not None:
                raise problem
            self._durability.flushed(job)

    def flush(self, *, is_last: bool = False) -> None:
        """Sync everything below the log end (blocks)."""
        is_whole = False
        while not is_whole:
            job = self.job(is_last=is_last)
            with self._log.disk:
                job.run()
            self.flushed(job)
            is_whole = job.is_whole

    # -- while the log goes on ---------------------------------------------------------------

    @property
    def unwritten_bytes(self) -> int:
        """Return how many bytes of the active segment the kernel was not asked to write yet."""
        active = self._log.segments.active
        return active.size_bytes - active.written_back_bytes

    def write_back_job(self) -> Callable[[], None]:
        """Return a job that asks the kernel to write the active segment, without a guarantee.

        Without this job dirty pages accumulate until the kernel stops a writer for a second, and
        other brokers may declare this one dead. The job may block, so run it in an executor.
        """
        active = self._log.segments.active
        start, active.written_back_bytes = active.written_back_bytes, active.size_bytes
        return partial(active.file.start_write_back, start, active.size_bytes - start)

    # -- at the end --------------------------------------------------------------------------

    def write_last(self) -> None:
        """Write the log's in-memory state to files, as the first half of a close.

        `sync_last` is the second half.
        """
        log = self._log
        if log.disk.failure is not None:
            return
        run_to_end(log.rebuilding())
        with log.disk:
            if log.log_end_offset not in log.snapshots.offsets and log.log_end_offset:
                log.take_snapshot()
            with suppress(KafkaStorageError):
                log.save_epochs()
            log.segments.active.become_inactive()

    def sync_last(self) -> None:
        """Sync the log, as the second half of a close (blocks), in any thread."""
        log = self._log
        is_synced = self._durability.is_as_closed(log.log_end_offset, log.snapshots)
        if log.disk.failure is None and not is_synced:
            self.flush(is_last=True)
            self._durability.closed(log.log_end_offset)
