"""Keeps one checkpoint file of the data directory, and knows what it says on the disk.

The checkpoints may lag behind, but two things may not happen before an offset is on the disk:

  a truncation     below it: what grows there would count as synced, committed, cleaned or deleted
  a compaction     above the recovery point: its gap would count as a hole, made by a power cut

Both wait here. Whoever waits is served by the next write, however many they are.
"""

import asyncio
from concurrent.futures import Executor

from ...runtime.sliced_work import SlicedWork
from ...storage.directory.log_directory import LogDirectory
from ...wire.identifiers import TopicPartition


class CheckpointWriter:
    """The only one who writes the checkpoint `name` while the broker runs."""

    def __init__(
        self, directory: LogDirectory, name: str, executor: Executor, work: SlicedWork
    ) -> None:
        self._directory = directory
        self._name = name
        self._executor = executor
        self._work = work
        self._lock = asyncio.Lock()
        self._begun = self._done = 0
        # Upper bounds for what is written, until the next write that nobody waits for.
        self._limits: dict[TopicPartition, int] = {}

    async def write_now_and_then(self) -> None:
        """The regular write. Raises KafkaStorageError."""
        self._limits.clear()
        await self.write()

    async def write(self) -> None:
        """Return when offsets as they are now, or newer ones, are on the disk.

        Raises KafkaStorageError: then nobody knows which offsets are.
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
            await asyncio.get_running_loop().run_in_executor(
                self._executor, self._directory.write_offsets, self._name, offsets
            )
            self._done = number

    def is_at_most(self, key: TopicPartition, offset: int) -> bool:
        """Whether the disk says no more than `offset` of a log, and cannot do so in a moment."""
        return not self._lock.locked() and 0 <= self._on_disk(key) <= offset

    async def lower(self, key: TopicPartition, offset: int) -> None:
        """Have the disk say no more than `offset` of a log; ask `is_at_most` afterwards."""
        self._limits[key] = min(offset, self._limits.get(key, offset))
        await self.write()

    async def reach(self, key: TopicPartition, offset: int) -> bool:
        """Have the disk say at least `offset` of a log; False if the log is not there itself."""
        if self._on_disk(key) < offset:
            await self.write()
        return self._on_disk(key) >= offset

    def _on_disk(self, key: TopicPartition) -> int:
        """What the disk says of a log; -1 when it is not known."""
        offsets = self._directory.offsets.on_disk[self._name]
        return -1 if offsets is None else offsets.get(key, 0)
