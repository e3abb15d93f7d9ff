"""The maintenance of a broker's logs, with syncs, checkpoints, retention, and removal.

Work that waits for a disk runs in an executor, one job at a time. Decisions are made on the event
loop. No acknowledged record depends on this maintenance. Syncs shorten the recovery after a crash,
and limit the loss by a power failure.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable
from concurrent.futures import Executor
from contextlib import contextmanager

from ...runtime.background_task import background_task, end_tasks
from ...runtime.rate_limited_log import LimitedLog
from ...runtime.steps import Steps
from ...storage.checkpoint import (
    CLEANED_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from ...storage.corrupt_file import LOG_TROUBLE, UNREADABLE
from ...storage.directory.log_directory import LogDirectory
from ...storage.topic_configs import LONG_MAX
from ..clock import until_tenth_s
from ..config.broker_config import BrokerConfig
from .checkpoint_writer import CheckpointWriter
from .hosted_partition import HostedPartition
from .replica_manager import ReplicaManager
from .storage_failures import DiskTrouble

logger = logging.getLogger(__name__)
WRITE_BACK_CHECK_MS = 100
WRITE_BACK_BYTES = 8 << 20  # the limit for one log
DIRTY_BYTES_MAX = 128 << 20  # the limit for all logs, half a second of an ordinary disk
FLUSH_CHECK_MS = 1000
PURGE_MS = 5000
REPEAT_ERROR_MS = 60_000
LOGS_A_STEP = 64  # some 0.3 ms


class LogMaintenance:
    """The background maintenance of one data directory."""

    def __init__(
        self,
        replicas: ReplicaManager,
        directory: LogDirectory,
        config: BrokerConfig,
        executor: Executor,
        directory_executor: Executor,
    ) -> None:
        self._replicas = replicas
        self._directory = directory
        self._config = config
        self._executor = executor
        self._directory_executor = directory_executor  # opens and removes logs
        self._loop = asyncio.get_running_loop()
        self._timed: set[HostedPartition] = set()  # logs with unflushed records and a flush.ms
        # By log, the bytes that the kernel was not asked to write yet, and their sum.
        self._dirty: dict[HostedPartition, int] = {}
        self._dirty_bytes = 0
        self._limited_log = LimitedLog(logger)
        replicas.disk = DiskTrouble(directory.path, directory_executor)

        def writer(name: str) -> CheckpointWriter:
            return CheckpointWriter(directory, name, directory_executor, replicas.work)

        self.recovery_points = writer(RECOVERY_POINTS)
        self.cleaned_offsets = writer(CLEANED_OFFSETS)  # written after each compaction
        high_watermarks = writer(HIGH_WATERMARKS)
        log_starts = writer(LOG_START_OFFSETS)
        replicas.checkpoints = (
            self.recovery_points,
            self.cleaned_offsets,
            high_watermarks,
            log_starts,
        )
        self._tasks = [
            background_task(f"log maintenance: {name}", self._every(interval_ms, work))
            for name, interval_ms, work in (
                ("write-back", WRITE_BACK_CHECK_MS, self._look_at_written),
                ("flush", FLUSH_CHECK_MS, self._flush_due),
                (
                    "high watermarks",
                    config.replica_high_watermark_checkpoint_interval_ms,
                    high_watermarks.write_now_and_then,
                ),
                (
                    "recovery points",
                    config.log_flush_offset_checkpoint_interval_ms,
                    self.recovery_points.write_now_and_then,
                ),
                (
                    "log starts",
                    config.log_flush_start_offset_checkpoint_interval_ms,
                    log_starts.write_now_and_then,
                ),
                ("retention", config.log_retention_check_interval_ms, self.apply_retention),
                ("purge", PURGE_MS, self._purge),
            )
        ]

    async def stop(self) -> None:
        """Stop the background work. A job that runs in an executor continues to its end."""
        await self._replicas.disk.stop()
        await end_tasks(*self._tasks)

    async def _every(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        """Run the work periodically, and log repeated failures at most once a minute."""
        silent_until_ms = 0
        while True:
            await asyncio.sleep(until_tenth_s(self._loop.time(), interval_ms / 1000))
            try:
                await work()
                silent_until_ms = 0
            except LOG_TROUBLE as error:
                now_ms = self._replicas.clock.monotonic_ms()
                if now_ms >= silent_until_ms:
                    silent_until_ms = now_ms + REPEAT_ERROR_MS
                    logger.error("the maintenance of logs failed and will be retried: %s", error)

    async def _look_at_written(self) -> None:
        """Flush logs that need it, and write back data before the kernel throttles dirty pages.

        Also write producer snapshots, and rebuild damaged indexes of aborted transactions. Only the
        logs that were put into `replicas.written` since the last run are checked.
        """
        if not self._replicas.written:
            return
        written, self._replicas.written = self._replicas.written, set()
        noting = self._noting(written)
        for partition in await self._replicas.work.finish("written logs", noting):
            log = partition.log
            if log.is_failed:
                continue
            with self._one(partition):
                if log.aborted_transactions.damaged is not None:
                    await self._mend(partition)
            with self._one(partition):
                if log.local.snapshot_needed:
                    await self._replicas.work.run("producer snapshot", log.local.snapshotting())
        for partition in [p for p in written if self._dirty.get(p, 0) >= WRITE_BACK_BYTES]:
            await self._write_back(partition)
        # Many logs with few dirty bytes each, written back from the oldest.
        while self._dirty_bytes > DIRTY_BYTES_MAX:
            await self._write_back(next(iter(self._dirty)))

    def _noting(self, written: Iterable[HostedPartition]) -> Steps[list[HostedPartition]]:
        """Start due flushes of the logs in `written`, and count their dirty bytes.

        Returns the logs that need a producer snapshot, or whose index of aborted transactions is
        damaged. Logs that are written during these steps are handled in the next run.
        """
        found: list[HostedPartition] = []
        now_ms = self._replicas.clock.wall_ms()
        for number, partition in enumerate(written, 1):
            if number % LOGS_A_STEP == 0:
                yield
            log = partition.log
            if log.is_failed or self._replicas.get_by_id(partition.key) is not partition:
                self._dirty_bytes -= self._dirty.pop(partition, 0)
                self._timed.discard(partition)
                continue
            if log.flushing.is_needed(now_ms):
                self._replicas.flusher.flush(partition)
            elif log.config.flush_ms < LONG_MAX:
                self._timed.add(partition)
            self._dirty_bytes += log.flushing.unwritten_bytes - self._dirty.get(partition, 0)
            self._dirty[partition] = log.flushing.unwritten_bytes
            if log.aborted_transactions.damaged is not None or log.local.snapshot_needed:
                found.append(partition)
        return found

    @contextmanager
    def _one(self, partition: HostedPartition) -> Generator[None, None, None]:
        """Catch an error in the maintenance of one log, so that other logs are maintained.

        Damage and failed logs are reported. After any other error the log is maintained in the next
        run.
        """
        try:
            yield
        except LOG_TROUBLE as error:
            if isinstance(error, UNREADABLE):
                partition.log.damage.found(error)
            elif not partition.log.is_failed:
                now_s = self._loop.time()
                text = "maintenance of %r failed, and is tried again: %s"
                kind = "maintenance of one log"
                self._limited_log.log(logging.ERROR, kind, now_s, text, partition, error)
            self._replicas.fail(partition)

    async def _mend(self, partition: HostedPartition) -> None:
        """Rebuild the damaged index of aborted transactions of one log.

        If this fails, the next read of the index reports the damage again.
        """
        log, segment = partition.log, partition.log.aborted_transactions.damaged
        assert segment is not None
        path = segment.transaction_index.path
        logger.error("%s cannot be read, and is rebuilt from the log", path)
        steps = log.aborted_transactions.mending()
        mending = await self._replicas.work.run("transaction index", steps)
        if mending is not None:
            await self._loop.run_in_executor(self._executor, mending.write)
            log.aborted_transactions.mended(mending)

    async def _write_back(self, partition: HostedPartition) -> None:
        self._dirty_bytes -= self._dirty.pop(partition)
        if not partition.log.is_failed:
            job = partition.log.flushing.write_back_job()
            with self._one(partition):
                await self._loop.run_in_executor(self._executor, job)

    async def _flush_due(self) -> None:
        """Flush the logs with an expired flush.ms."""
        now_ms = self._replicas.clock.wall_ms()
        for partition in list(self._timed):
            log = partition.log
            is_clean = log.is_failed or log.flushing.recovery_point >= log.log_end_offset
            if not is_clean and log.flushing.is_needed(now_ms):
                self._replicas.flusher.flush(partition)
            if is_clean or log.config.flush_ms == LONG_MAX:
                self._timed.discard(partition)

    async def apply_retention(self) -> None:
        """Apply the retention settings of all logs once."""
        for partition in self._replicas:
            log = partition.log
            if log.is_failed:
                continue
            with self._one(partition):
                deleting = log.retention.deleting_old_segments(self._replicas.clock.wall_ms())
                if await self._replicas.work.run("retention", deleting):
                    self._replicas.log_start_moved(partition)
                    self._replicas.written.add(partition)

    async def _purge(self) -> None:
        directory, now_ms = self._directory, self._replicas.clock.wall_ms()
        try:
            await self._loop.run_in_executor(self._directory_executor, directory.retry_renames)
        finally:  # free the space of segments that were renamed earlier
            await self._loop.run_in_executor(self._executor, directory.purge_deleted, now_ms)
