"""The writer of one checkpoint file of the data directory, with the offsets that are on the disk.

The checkpoints may lag behind, but two operations must wait for an offset on the disk:

  a truncation     below it: new records there would count as synced, committed, cleaned or deleted
  a compaction     above the recovery point: its gap would count as a hole, made by a power cut

Both wait here. One write serves all that wait.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor

from ...runtime.sliced_work import SlicedWork
from ...storage.directory.log_directory import LogDirectory
from ...wire.identifiers import TopicPartition


class CheckpointWriter:
    """The only writer of the checkpoint `name` while the broker runs."""

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

    async def write_now_and_then(self) -> None:
        """Write without bounds, periodically; raise KafkaStorageError."""
        self._limits.clear()
        await self.write()

    async def write(self) -> None:
        """Return when the current offsets, or newer ones, are on the disk.

        Raises KafkaStorageError: then the offsets on the disk are unknown.
        """
        wanted = self._begun + 1
        async with self._lock:
            if self._done >= wanted:
                return  # by a write that began after we had asked
            self._begun += 1
            number, collecting = self._begun, self._directory.collect_offsets(self._name)
            offsets = await self._work.run(self._name, collecting)
            for key, limit in self._limits.items():
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
        """Return whether the offset on the disk is at most `offset`, however a running write ends.

        Truncations of many partitions keep a slow disk writing: none may wait for a pause.
        """
        if self._lock.locked():
            contents = self._running
        else:
            contents = (self._directory.offsets.on_disk[self._name],)
        return bool(contents) and all(
            content is not None and content.get(key, 0) <= offset for content in contents
        )

    async def lower(self, key: TopicPartition, offset: int) -> None:
        """Write an offset of a log of `offset` at most; check `is_at_most` afterwards."""
        self._limits[key] = min(offset, self._limits.get(key, offset))
        await self.write()

    async def reach(self, key: TopicPartition, offset: int) -> bool:
        """Write an offset of a log of at least `offset`; return False if the log is behind it."""
        if self._on_disk(key) < offset:
            await self.write()
        return self._on_disk(key) >= offset

    def _on_disk(self, key: TopicPartition) -> int:
        """Return the offset of a log on the disk; -1 when it is unknown."""
        offsets = self._directory.offsets.on_disk[self._name]
        return -1 if offsets is None else offsets.get(key, 0)
