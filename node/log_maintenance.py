"""What a broker does for its logs beside serving them: syncing, checkpoints, retention, removal.

Everything that waits for a disk runs in the executor, one job at a time, and takes its decisions
on the event loop. A broker loses nothing acknowledged when this file never runs: syncing narrows
what recovery must read again, and what a power cut can take.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

from ..replication.background_task import background_task
from ..storage.checkpoint import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from ..storage.log_directory import LogDirectory
from ..wire.errors import KafkaError, KafkaStorageError
from .checkpoint_writer import CheckpointWriter
from .config import BrokerConfig
from .hosted_partition import HostedPartition
from .replica_manager import ReplicaManager

logger = logging.getLogger(__name__)
WRITE_BACK_CHECK_MS = 100
FLUSH_CHECK_MS = 1000
PURGE_MS = 5000
REPEAT_ERROR_MS = 60_000


class LogMaintenance:
    """The background work of one data directory."""

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
        self._directory_executor = directory_executor  # where logs are opened and removed
        self._loop = asyncio.get_running_loop()
        self._flushing: set[HostedPartition] = set()
        self.recovery_points = CheckpointWriter(directory, RECOVERY_POINTS, directory_executor)
        replicas.recovery_points = self.recovery_points
        high_watermarks = CheckpointWriter(directory, HIGH_WATERMARKS, directory_executor)
        log_starts = CheckpointWriter(directory, LOG_START_OFFSETS, directory_executor)
        self._tasks = [
            background_task(f"log maintenance: {name}", self._every(interval_ms, work))
            for name, interval_ms, work in (
                ("write-back", WRITE_BACK_CHECK_MS, self._write_back),
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
                ("retention", config.log_retention_check_interval_ms, self._apply_retention),
                ("purge", PURGE_MS, self._purge),
            )
        ]

    async def stop(self) -> None:
        """End the background work; a sync under way is waited for."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def flush_now(self, partition: HostedPartition) -> None:
        """Bring a log to the disk in the executor."""
        if partition in self._flushing:
            return
        self._flushing.add(partition)
        try:
            await self._loop.run_in_executor(self._executor, partition.log.flush)
        except KafkaStorageError:
            self._replicas.fail(partition)
        finally:
            self._flushing.discard(partition)

    async def _every(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        """Do it again and again. What fails is tried again next time, and logged now and then."""
        silent_until_ms = 0
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await work()
                silent_until_ms = 0
            except (KafkaError, OSError) as error:
                now_ms = self._replicas.clock.monotonic_ms()
                if now_ms >= silent_until_ms:
                    silent_until_ms = now_ms + REPEAT_ERROR_MS
                    logger.error("maintenance failed, and is tried again: %s", error)

    async def _write_back(self) -> None:
        """Start writing what was appended, before the kernel throttles us for dirty pages."""
        if not self._replicas.written:
            return
        written, self._replicas.written = self._replicas.written, set()
        for partition in written:
            log = partition.log
            if log.is_failed:
                continue
            try:
                if log.write_back_needed:
                    await self._loop.run_in_executor(self._executor, log.start_write_back)
                if log.snapshot_needed:
                    await self._replicas.work.run("producer snapshot", log.snapshotting())
            except KafkaStorageError:
                self._replicas.fail(partition)

    async def _flush_due(self) -> None:
        now_ms = self._replicas.clock.wall_ms()
        for partition in self._replicas:
            if not partition.log.is_failed and partition.log.flush_needed(now_ms):
                await self.flush_now(partition)

    async def _apply_retention(self) -> None:
        for partition in self._replicas:
            log = partition.log
            if log.is_failed:
                continue
            try:
                count = log.delete_old_segments(self._replicas.clock.wall_ms())
            except KafkaStorageError:
                self._replicas.fail(partition)
                continue
            if count:
                logger.info("%r: retention removed %d segments", partition, count)
                self._replicas.watermark_moved(partition)
            await asyncio.sleep(0)

    async def _purge(self) -> None:
        await self._loop.run_in_executor(self._directory_executor, self._directory.retry_renames)
        now_ms = self._replicas.clock.wall_ms()
        await self._loop.run_in_executor(self._executor, self._directory.purge_deleted, now_ms)
