"""The writer of one checkpoint file, with an offset of each log in the data directory.

A checkpoint may lag behind its logs, but two operations require an offset on the disk:

  a truncation     the checkpoint must be at or below the new end, since new records above it
                   would otherwise count as synced, committed, cleaned or deleted
  a compaction     the recovery point must be at or above the compacted segments, since their
                   gaps would otherwise count as damage by a power failure

Both wait here, and share one write.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Executor

from ...runtime.sliced_work import SlicedWork
from ...storage.directory.log_directory import LogDirectory
from ...wire.identifiers import TopicPartition


class CheckpointWriter:
    """The only writer of the checkpoint file `name` while the broker runs."""

    def __init__(
        self, directory: LogDirectory, name: str, executor: Executor, work: SlicedWork
    ) -> None:
        self._directory = directory
        self._name = name
        self._executor = executor
        self._work = work
        self._lock = asyncio.Lock()
        self._begun = self._done = 0
        # The content of the file before the running write, None if unknown, and after it.
        self._running: tuple[Mapping[TopicPartition, int] | None, ...] = ()
        # Upper bounds of written offsets, until the next regular write.
        self._limits: dict[TopicPartition, int] = {}
        # Those of a write that collects its offsets, which a regular write meanwhile leaves alone.
        self._collecting: Mapping[TopicPartition, int] | None = None
        self._lowering = Counter[TopicPartition]()  # writes that wait with a limit of the log

    async def write_now_and_then(self) -> None:
        """Write the checkpoint for the periodic maintenance.

        The upper bounds that `lower` has set for truncations are removed, except those of calls
        that still wait. Raises KafkaStorageError.
        """
        self._limits = {key: self._limits[key] for key in self._lowering}
        await self.write()

    async def write(self) -> None:
        """Wait until the current offsets, or newer ones, are on the disk.

        Raises KafkaStorageError, after which the offsets on the disk are unknown.
        """
        wanted = self._begun + 1
        async with self._lock:
            if self._done >= wanted:
                return  # written by a later write that this call has waited for
            self._begun += 1
            number, collecting = self._begun, self._directory.collect_offsets(self._name)
            self._collecting = limits = dict(self._limits)
            try:
                offsets = await self._work.run(self._name, collecting)
            finally:
                self._collecting = None
            for key, limit in (*limits.items(), *self._limits.items()):
                offsets[key] = min(offsets.get(key, 0), limit)
            self._running = self._directory.offsets.on_disk[self._name], offsets
            try:
                await asyncio.get_running_loop().run_in_executor(
                    self._executor, self._directory.write_offsets, self._name, offsets
                )
            finally:
                self._running = ()
            self._done = number

    def is_at_most(self, key: TopicPartition, offset: int) -> bool:
        """Return whether the log's offset in the file is at most `offset`.

        During a write this must hold for both the old and the new content of the file. The caller
        need not wait for the end of the write, since truncations of many partitions keep a slow
        disk writing. While the new offsets are collected, only the upper bounds are known.
        """
        contents = self._running or (self._directory.offsets.on_disk[self._name],)
        if self._collecting is not None and self._collecting.get(key, offset + 1) > offset:
            return False
        return all(content is not None and content.get(key, 0) <= offset for content in contents)

    async def lower(self, key: TopicPartition, offset: int) -> None:
        """Write the checkpoint with at most `offset` for a log that will be truncated.

        The bound also applies to further writes until the next `write_now_and_then`. The caller
        must check `is_at_most` afterwards.
        """
        self._limits[key] = min(offset, self._limits.get(key, offset))
        self._lowering[key] += 1
        try:
            await self.write()
        finally:
            self._lowering[key] -= 1
            if not self._lowering[key]:
                del self._lowering[key]

    async def reach(self, key: TopicPartition, offset: int) -> bool:
        """Return whether the log's offset in the file is at least `offset`.

        If it is below, the checkpoint is written first with the current offsets.
        """
        if self._on_disk(key) < offset:
            await self.write()
        return self._on_disk(key) >= offset

    def _on_disk(self, key: TopicPartition) -> int:
        """Return the offset of a log in the file on the disk, or -1 if it is unknown."""
        offsets = self._directory.offsets.on_disk[self._name]
        return -1 if offsets is None else offsets.get(key, 0)
