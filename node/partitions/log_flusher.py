"""The flushes of logs to the disk, off the event loop, with callbacks.

A requested flush begins at the end of the turn of the event loop, so that all batches of a turn
share it. Requests during a flush share the next flush of that log. The number of syncs therefore
depends on the speed of the disk, not on the number of batches (group commit). Jobs are created and
their results applied on the event loop. The executor only waits for the disk, and its number of
threads limits concurrent syncs.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from ...storage.flush_job import FlushJob
from ...wire.errors import KafkaStorageError
from .hosted_partition import HostedPartition, PartitionCallback

FLUSHES_AT_ONCE = 4
RETRY_S = 0.1
Synced = Callable[[], object]


class LogFlusher:
    """The flushes of one broker's logs, by default in the executor of the loop."""

    def __init__(self, *, flushed: PartitionCallback, failed: PartitionCallback) -> None:
        self.executor: Executor | None = None
        self._loop = asyncio.get_running_loop()
        self._flushed = flushed
        self._failed = failed
        self._is_stopped = False
        self._running: set[HostedPartition] = set()
        self._next: dict[HostedPartition, list[Synced]] = {}

    def start(self, executor: Callable[[int, str], Executor]) -> None:
        """Create the threads of the flusher by calling `executor` with their number and name."""
        self.executor = executor(FLUSHES_AT_ONCE, "flushes")

    def stop(self) -> None:
        """Stop the threads after the running syncs.

        The close of the logs syncs all later records.
        """
        self._is_stopped = True
        if self.executor is not None:
            self.executor.shutdown()

    def flush(self, partition: HostedPartition, synced: Synced | None = None) -> None:
        """Flush the records that are in the log at the end of this turn of the event loop.

        `synced` is called after the sync. If the sync fails the log has failed, and `synced` is not
        called.
        """
        waiting = self._next.get(partition)
        if waiting is None:
            waiting = self._next[partition] = []
            if partition not in self._running:
                self._loop.call_soon(self._begin, partition)
        if synced is not None:
            waiting.append(synced)

    def _begin(self, partition: HostedPartition) -> None:
        waiting = self._next.pop(partition)
        if self._is_stopped:
            return
        try:
            job = partition.log.flushing.job()
        except KafkaStorageError:
            if partition.log.is_failed:
                self._failed(partition)
            else:  # the process has too many open files
                self._next[partition] = waiting
                self._loop.call_later(RETRY_S, self._begin, partition)
            return
        self._running.add(partition)
        future = self._loop.run_in_executor(self.executor, job.run)
        future.add_done_callback(partial(self._done, partition, job, waiting))

    def _done(
        self,
        partition: HostedPartition,
        job: FlushJob,
        waiting: list[Synced],
        future: "asyncio.Future[None]",
    ) -> None:
        try:
            if future.cancelled():
                return
            problem = future.exception()
            if problem is not None and not isinstance(problem, OSError):
                raise problem
            try:
                partition.log.flushing.flushed(job, problem)
            except KafkaStorageError:
                self._next.pop(partition, None)
                self._failed(partition)
                return
            if not job.is_whole:
                self._next[partition] = waiting + self._next.get(partition, [])
                return
            for call in (*waiting, partial(self._flushed, partition)):
                try:
                    call()
                except Exception as error:  # the other logs wait for the same sync
                    message = f"{partition!r}: {call} failed after a flush"
                    self._loop.call_exception_handler({"message": message, "exception": error})
        finally:  # all flushes requested until now share the next sync
            self._running.discard(partition)
            if partition in self._next:
                self._begin(partition)
