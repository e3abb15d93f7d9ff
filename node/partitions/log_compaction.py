"""Log compaction, one log at a time, in an executor. Segments are replaced on the event loop.

`log_cleaner` of the storage chooses the logs and the offsets to compact. The executor only reads
closed segments and writes new files beside them, so appends and reads continue meanwhile.
"""

import asyncio
import logging
from concurrent.futures import Executor

from ...runtime.background_task import background_task, end_tasks
from ...runtime.sliced_work import SlicedWork
from ...storage.compaction.cleaning import CleanedGroup, Cleaning
from ...storage.compaction.log_cleaner import LogCleaner, SegmentsChanged
from ...storage.corrupt_file import LOG_TROUBLE
from ...storage.directory.log_directory import LogDirectory
from ...wire.errors import KafkaStorageError
from ..clock import Clock
from .checkpoint_writer import CheckpointWriter

logger = logging.getLogger(__name__)
_DONE = object()


class LogCompaction:
    """The background compaction of one data directory, every log.cleaner.backoff.ms."""

    def __init__(
        self,
        directory: LogDirectory,
        cleaner: LogCleaner,
        clock: Clock,
        executor: Executor,
        recovery_points: CheckpointWriter,
        cleaned_offsets: CheckpointWriter,
        work: SlicedWork,
        *,
        backoff_ms: int,
    ) -> None:
        self._directory = directory
        self._cleaner = cleaner
        self._clock = clock
        self._executor = executor
        self._recovery_points = recovery_points
        self._cleaned_offsets = cleaned_offsets
        self._work = work
        self._backoff_ms = backoff_ms
        self._task = background_task("log compaction", self._run())

    async def stop(self) -> None:
        """Stop the compaction of logs.

        The next start removes the files of an interrupted compaction.
        """
        await end_tasks(self._task)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._backoff_ms / 1000)
            await self._pass()

    async def _pass(self) -> None:
        """Compact all logs that need compaction, one after the other.

        No reference to a log is kept afterwards. Otherwise thousands of deleted logs would close
        their files together, on the event loop.
        """
        logs = list(self._directory.logs.values())
        while cleaning := await self._work.run(
            "what to compact", self._cleaner.beginning(logs, self._clock.wall_ms())
        ):
            partition = self._cleaner.partition
            if not await self._clean(cleaning):  # the next pass retries this log
                logs = [log for log in logs if (log.topic, log.partition) != partition]

    async def _clean(self, cleaning: Cleaning) -> bool:
        """Compact one log, and return whether it succeeded."""
        loop = asyncio.get_running_loop()
        steps = iter(cleaning.steps())
        try:
            while True:
                step = await loop.run_in_executor(self._executor, next, steps, _DONE)
                if step is _DONE:
                    break
                if isinstance(step, CleanedGroup):
                    if not await self._recovery_points.reach(
                        self._cleaner.partition, step.end_offset
                    ):
                        raise SegmentsChanged  # the log was truncated in the meantime
                    self._cleaner.swap(step)
            self._cleaner.finish()
        except SegmentsChanged as error:
            self._cleaner.give_up(error)
            return False
        except LOG_TROUBLE as error:
            # A removed segment may have been replaced by a new one with fewer entries and the same
            # name.
            self._cleaner.give_up(error)
            return False
        except asyncio.CancelledError as error:
            self._cleaner.give_up(error)
            raise
        try:
            await self._cleaned_offsets.write_now_and_then()
        except (
            KafkaStorageError
        ) as error:  # the disk may be full; after a restart, more is compacted than needed
            logger.warning("the checkpoint of compacted offsets cannot be written: %s", error)
        return True
